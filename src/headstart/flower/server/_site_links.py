"""The server's links to its sites: which are connected, messages to them, replies from them.

The only module of the server that knows Flower's grid and its nodes; the others know sites by
number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from headstart.flower.protocol._encoding import Bounds, decode, encode
from headstart.flower.protocol._flower_records import from_records, to_records
from headstart.flower.protocol._messages import Identity, IdentityRequest
from headstart.flower.server._rejection import reason_to_reject

POLL_SECONDS = 0.25
IDENTITY_SECONDS = 60.0
IDENTITY_BOUNDS = Bounds(header=1 << 12, arrays=0, body=0)


@dataclass(frozen=True)
class Parcel:
    """An encoded order on its way to a site."""

    client: int
    node: int
    content: bytes
    kind: str
    """Flower's type of message."""


class SiteLinks:
    """The sites of one federation on one grid."""

    def __init__(
        self,
        grid: Grid,
        names: Sequence[str],
        *,
        insecure: bool,
        notice: Callable[[str], None],
    ) -> None:
        self.grid, self.insecure, self.notice = grid, insecure, notice
        self._numbers = {name: number for number, name in enumerate(names)}
        self._told_names: dict[int, str | None] = {}
        """What nodes without a registered name answered; None if the answer was unusable."""

    def connected(self) -> Mapping[int, int]:
        """Return the node of every site that is connected now; ignore unknown nodes."""
        nodes = {node.node_id: node.name for node in self.grid.get_nodes()}
        if self.insecure:
            self._ask_names([n for n, name in nodes.items() if not name])
        connected: dict[int, int] = {}
        for node, registered in nodes.items():
            name = registered or self._told_names.get(node)
            if name in self._numbers:
                connected.setdefault(self._numbers[name], node)
        return dict(sorted(connected.items()))

    def exchange(
        self, parcels: Sequence[Parcel], *, group: str, deadline: float
    ) -> list[tuple[int, Message]]:
        """Send the parcels; return the replies before the deadline, each with its client."""
        messages = [
            Message(
                to_records(parcel.content), dst_node_id=parcel.node, message_type=parcel.kind,
                group_id=group, ttl=deadline,
            )
            for parcel in parcels
        ]  # fmt: skip
        # A reply is matched by the message it answers: if a message could not be delivered, the
        # error does not come from the node it was sent to.
        ids = self.grid.push_messages(messages)
        client_of = {sent: p.client for sent, p in zip(ids, parcels, strict=True) if sent}
        waiting, replies = set(client_of), []
        until = time.monotonic() + deadline
        while waiting and time.monotonic() < until:
            for reply in self.grid.pull_messages(list(waiting)):
                answered = reply.metadata.reply_to_message_id
                if answered in waiting:
                    waiting.discard(answered)
                    replies.append((client_of[answered], reply))
            if waiting:
                time.sleep(POLL_SECONDS)
        return replies

    def _ask_names(self, nodes: Sequence[int]) -> None:
        """Ask nodes for their sites' names, which the server lacks if there are no node keys."""
        unknown = [node for node in nodes if node not in self._told_names]
        if not unknown:
            return
        request = encode(IdentityRequest())
        parcels = [Parcel(node, node, request, MessageType.QUERY) for node in unknown]
        for node, reply in self.exchange(parcels, group="", deadline=IDENTITY_SECONDS):
            why = reason_to_reject(self._take_name, node, reply)
            if why is not None:
                self._told_names[node] = None
                self.notice(f"node {node} does not say which site it is and is not used: {why}")

    def _take_name(self, node: int, reply: Message) -> None:
        """Store the name; a node that reports an error is asked again next time."""
        if not reply.has_error():
            content = from_records(reply.content)
            self._told_names[node] = decode(content, IDENTITY_BOUNDS, Identity).name
