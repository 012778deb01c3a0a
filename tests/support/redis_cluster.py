"""A real Redis Cluster of three masters, each with a replica, made by hand: the wheels bring no `--cluster` tool."""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from typing import Any

from tests.support.servers import Boot, Server, wait_until

SLOTS = 16384
BATCH = 50  # keys per MIGRATE


class RedisCluster:
    """Three masters with a third of the slots each, and one replica for each of them."""

    def __init__(self, boot: Boot, flavour: str = "valkey-9.1", timeout_ms: int = 2000) -> None:
        config = {
            "cluster-enabled": "yes",
            "cluster-require-full-coverage": "no",
            "cluster-node-timeout": str(timeout_ms),
            "cluster-replica-validity-factor": "0",
        }
        self.masters = [boot(flavour=flavour, config=config) for _ in range(3)]
        self.replicas = [boot(flavour=flavour, config=config) for _ in range(3)]
        for number, node in enumerate(self.nodes, 1):
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number)
            node.command("CLUSTER", "MEET", "127.0.0.1", self.masters[0].port)
        for number, master in enumerate(self.masters):
            master.command("CLUSTER", "ADDSLOTSRANGE", number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1)
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes), 60, "all nodes know each other")
        for master, replica in zip(self.masters, self.replicas, strict=True):
            wait_until(lambda m=master, r=replica: r.command("CLUSTER", "REPLICATE", self.id_of(m)) == b"OK", 60)
        wait_until(self.is_ok, 60, "the cluster is ok")
        for master in self.masters:
            wait_until(lambda m=master: m.info("replication").get("connected_slaves") == "1", 60, "its replica")

    @property
    def nodes(self) -> list[Server]:
        return [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def _knows_all(self, node: Server) -> bool:
        info = node.command("CLUSTER", "INFO").decode()
        return f"cluster_known_nodes:{len(self.nodes)}" in info and f"cluster_slots_assigned:{SLOTS}" in info

    def id_of(self, node: Server) -> str:
        found: str = node.command("CLUSTER", "MYID").decode()
        return found

    def is_ok(self) -> bool:
        return all(b"cluster_state:ok" in node.command("CLUSTER", "INFO") for node in self.nodes)

    def master_of(self, namespace: str) -> Server:
        """Return the master that was given the slot of a namespace when the cluster was made."""
        return self.masters[slot_of(namespace) * 3 // SLOTS]

    def replica_of(self, master: Server) -> Server:
        return self.replicas[self.masters.index(master)]

    def has_failed_over_to(self, replica: Server) -> bool:
        return b"role:master" in replica.command("INFO", "replication") and self._state(replica)

    def _state(self, node: Server) -> bool:
        return b"cluster_state:ok" in node.command("CLUSTER", "INFO")

    def migrate(self, slot: int, source: Server, target: Server) -> Iterator[int]:
        """Move a slot as an operator does, while clients use it. Yield the number of keys moved so far."""
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        moved = 0
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, BATCH):
            where: list[Any] = ["127.0.0.1", target.port, "", 0, 10_000, "KEYS", *keys]
            assert source.command("MIGRATE", *where, seconds=20) in {b"OK", b"NOKEY"}
            moved += len(keys)
            yield moved
        for node in (target, source, *(other for other in self.masters if other not in {source, target})):
            node.command("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))


def slot_of(namespace: str) -> int:
    """Return the slot of a namespace, which is the hash tag of its keys."""
    return binascii.crc_hqx(namespace.encode(), 0) % SLOTS
