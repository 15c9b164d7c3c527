"""A federation without a network: a grid that passes messages straight to ClientApps.

The real server and client code run, in milliseconds. Messages are turned into records and back as
on the network, so what cannot be sent cannot pass here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, Metadata, RecordDict
from flwr.app.message.message import make_message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

ClientAppLike = Callable[[Message, Context], Message | None]
"""A ClientApp, or something that behaves like one, badly if need be; None: no answer ever."""


class LocalGrid(Grid):
    """Nodes by name; each is a ClientApp and the site's file it works with."""

    def __init__(self, apps: Mapping[str, ClientAppLike], sites: Mapping[str, Path]) -> None:
        # A message cannot be made without these. Flower sets them in the process it starts for a
        # ServerApp; flwr 1.41.0 has no other way to give them.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.nodes = {number: name for number, name in enumerate(sites, 2)}
        self.apps, self.sites = dict(apps), dict(sites)
        self.replies: dict[str, Message] = {}
        self.sent = 0

    @property
    def run(self) -> Any:
        """There is only one."""
        return None

    def set_run(self, run: Any) -> None:
        """Nothing to set."""

    def create_message(self, *args: Any, **options: Any) -> Message:
        """Flower's old way."""
        return Message(*args, **options)

    def get_node_ids(self) -> Iterable[int]:
        """All nodes that are there."""
        return [number for number, name in self.nodes.items() if name in self.apps]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The same with their names, as registered keys have them."""
        return [NodeInfo(node_id=n, name=self.nodes[n]) for n in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Have every message answered at once."""
        ids = []
        for message in messages:
            self.sent += 1
            number, node = str(self.sent), message.metadata.dst_node_id
            name = self.nodes[node]
            context = Context(
                run_id=1, node_id=node, node_config={"site": str(self.sites[name])},
                state=RecordDict(), run_config={},
            )  # fmt: skip
            reply = self.apps[name](_delivered(message, number), context)
            if reply is not None:
                self.replies[number] = reply
            ids.append(number)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers that are there."""
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Both at once."""
        return self.pull_messages(self.push_messages(messages))


def _delivered(message: Message, number: str) -> Message:
    """The message with the number that a server gives it."""
    about = message.metadata
    metadata = Metadata(
        run_id=about.run_id, message_id=number, src_node_id=about.src_node_id,
        dst_node_id=about.dst_node_id, reply_to_message_id="", group_id=about.group_id,
        created_at=about.created_at, ttl=about.ttl, message_type=about.message_type,
        src_task_id=about.src_task_id, dst_task_id=about.dst_task_id,
    )  # fmt: skip
    return make_message(metadata, content=message.content)
