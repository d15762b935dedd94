"""An asynchronous parameter server and two workers, each of which has half of the rows.

    python benchmarks/evidence/peers/parameter_server.py FOLDER
    python benchmarks/evidence/peers/parameter_server.py FOLDER --serve HOST:PORT
    python benchmarks/evidence/peers/parameter_server.py FOLDER --work 0 --serve HOST:PORT

After each batch a worker sends its gradients and gets the weights as they are then. The server applies
gradients as they come, by the config's optimizer. Both move as one block of bytes over TCP, straight into
tensors. One config is trained after the other; each worker evaluates half of the rows for validation. With
``--serve`` the process is the server, or one of the workers, and the others may be on other hosts.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from training import PROCESSES, Job, Outcome, Rows, Training, arguments, forked, read_job, report

PUSH, DONE = b"p", b"d"
_START_SECONDS = 60
"""Seconds that a worker waits for the server."""


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a flat tensor."""
    return memoryview(tensor.numpy()).cast("B")


def receive(connection: socket.socket, into: Tensor) -> None:
    """Fill a tensor with what comes."""
    left = bytes_of(into)
    while left:
        left = left[connection.recv_into(left) :]


def serve(job: Job, listener: socket.socket) -> list[Outcome]:
    """The server's work: each config's weights and optimizer."""
    connections = [listener.accept()[0] for _ in range(PROCESSES)]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return [serve_config(job, config, connections) for config in job.configs]


def serve_config(job: Job, config: Mapping[str, Any], connections: list[socket.socket]) -> Outcome:
    training = Training(job.workload, config)
    weights = flat(training.model)
    weights.grad = torch.empty_like(weights)
    training.model = nn.ParameterList([weights])
    optimizer = training.optimizer_of(config)
    began = time.time()
    for connection in connections:
        connection.sendall(bytes_of(weights.detach()))
    counted, received = torch.zeros(2, 1 + job.epochs, dtype=torch.int64)
    busy = set(connections)
    while busy:
        for connection in select.select(list(busy), [], [])[0]:
            if connection.recv(1) == PUSH:
                receive(connection, weights.grad)
                optimizer.step()
                connection.sendall(bytes_of(weights.detach()))
            else:
                receive(connection, received)
                counted += received
                busy.remove(connection)
    rows, *correct = counted.tolist()
    return Outcome(began, max(correct) / rows)


def flat(model: nn.Module) -> nn.Parameter:
    """The model's parameters in one, of which they become parts."""
    weights = nn.Parameter(nn.utils.parameters_to_vector(model.parameters()).detach())
    nn.utils.vector_to_parameters(weights.detach(), model.parameters())
    return weights


class Remote(Training):
    """A worker's side: its weights are what the server sent last."""

    def __init__(self, job: Job, config: Mapping[str, Any], server: socket.socket) -> None:
        super().__init__(job.workload, config)
        self._server = server
        self._weights = flat(self.model).detach()
        self._gradients = torch.zeros_like(self._weights)
        at = 0
        for parameter in self.model.parameters():
            size = parameter.numel()
            parameter.grad = self._gradients[at : at + size].view_as(parameter)
            at += size
        receive(server, self._weights)

    def epoch(self, rows: Rows) -> None:
        for batch in torch.randperm(len(rows[-1])).split(self.batch_size):
            self._gradients.zero_()
            self.gradients(rows, batch)
            self._server.sendall(PUSH)
            self._server.sendall(bytes_of(self._gradients))
            receive(self._server, self._weights)


def reached(address: tuple[str, int]) -> socket.socket:
    """A connection to the server, which may begin later than its workers."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def work(job: Job, number: int, address: tuple[str, int]) -> list[Outcome]:
    """A worker's work; the server listens at the address."""
    rows, valid = job.part(number, PROCESSES)
    with reached(address) as server:
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for config in job.configs:
            training = Remote(job, config, server)
            counted = [len(valid[-1])]
            for _ in range(job.epochs):
                training.epoch(rows)
                counted.append(training.correct(valid))
            server.sendall(DONE + bytes(bytes_of(torch.tensor(counted))))
    return []


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--serve", metavar="HOST:PORT", help="where the server listens")
    parser.add_argument("--work", type=int, choices=range(PROCESSES), help="the number of a worker")
    asked = parser.parse_args()
    job = read_job(asked.folder)
    if asked.serve is None:
        listener = socket.create_server(("127.0.0.1", 0))
        local = partial(process, job, listener)
        report(forked(local, 1 + PROCESSES))
        return
    host, port = asked.serve.rsplit(":", 1)
    if asked.work is None:
        report(serve(job, socket.create_server((host, int(port)))))
    else:
        work(job, asked.work, (host, int(port)))


def process(job: Job, listener: socket.socket, number: int) -> list[Outcome]:
    """The server's work, or that of a worker behind it."""
    return work(job, number - 1, listener.getsockname()) if number else serve(job, listener)


if __name__ == "__main__":
    main()
