"""Pairs of ranks bounce pickled objects and plain buffers; every bounce must come back unchanged."""

import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
peer = rank ^ 1


def bounce_object(value):
    if rank % 2 == 0:
        comm.send(value, peer)
        return comm.recv(source=peer)
    comm.send(comm.recv(source=peer), peer)
    return value


def bounce_buffer(data):
    if rank % 2 == 0:
        back = bytearray(len(data))
        comm.Send(data, peer)
        comm.Recv(back, peer)
        return bytes(back)
    passing = bytearray(len(data))
    comm.Recv(passing, peer)
    comm.Send(passing, peer)
    return data


failures = 0
if peer < ranks:
    size = 1
    while size <= 1 << 22:
        text = bytes((i * 7 + size + rank // 2) % 251 for i in range(min(size, 4096))) * (size // min(size, 4096))
        failures += bounce_buffer(text) != text
        failures += bounce_object({"size": size, "text": text}) != {"size": size, "text": text}
        size *= 4
failures = comm.allreduce(failures)
if rank == 0:
    print("pingpong:", "every bounce came back unchanged" if not failures else f"{failures} bounces came back changed")
sys.exit(failures != 0)
