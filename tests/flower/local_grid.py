"""A federation without a network: a grid that hands messages straight to ClientApps.

The real server and client code run, in milliseconds, for tests and trials. Messages are turned
into records and back as on the line, so what cannot be sent cannot pass here either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Answer = Callable[[Message, Context], Message | None]
"""A ClientApp, or something that behaves like one, badly if need be; None: no answer ever."""


class LocalGrid(Grid):
    """Nodes by name; each is a ClientApp and the site's file it works with."""

    def __init__(self, apps: Mapping[str, Answer], sites: Mapping[str, Path]) -> None:
        # Flower sets these in the process it starts for a ServerApp; a message cannot do without.
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
            name = self.nodes[message.metadata.dst_node_id]
            message.metadata.__dict__["_message_id"] = str(self.sent)
            context = Context(
                run_id=1, node_id=message.metadata.dst_node_id,
                node_config={"site": str(self.sites[name])}, state=RecordDict(), run_config={},
            )  # fmt: skip
            reply = self.apps[name](message, context)
            if reply is not None:
                self.replies[str(self.sent)] = reply
            ids.append(str(self.sent))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers that are there."""
        return [self.replies.pop(i) for i in list(message_ids) if i in self.replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Both at once."""
        return self.pull_messages(self.push_messages(messages))
