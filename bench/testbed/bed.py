# ===- bed.py - Nodes, links and processors of a test bed -------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""A cluster in one machine.

Each rank is a device: a network namespace with one port on a bridge. The port has
two rates, one for ranks of its node and one for all others, both ways (`htb`, which
is a tree of token buckets; `tbf` has but one rate a port). A control group gives
its process a fixed part of a core.

The kernel notices that a process has used up its part when its clock ticks, every
4 ms at 250 Hz, which is longer than a part of a short period. Another process that
wakes ten times a millisecond on each core makes it look (`metronome`)."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

PREFIX = "plaitbed"
SWITCH = f"{PREFIX}-switch"
GROUPS = f"/sys/fs/cgroup/cpu/{PREFIX}"
LOCK = f"/run/{PREFIX}.lock"
# The process of each rank.
MEMBERS = f"/run/{PREFIX}"
# What a run has printed when it is about to begin.
READY = "settings: execution"
SWITCH_ADDRESS = "10.77.255.254"
# Segments that the kernel hands to a port at once. A bucket has to hold one; what
# it holds passes at any rate, so that it should be small beside a message.
SEGMENT = 16 << 10
# Of a control group, in microseconds: how often a process gets its part.
PERIOD = 1000
# The kernel counts a group's part as that of each core, and lets all groups
# together have 0.95 of one.
MOST = 0.9
# What ends a run in an orderly way. A terminal sends its Ctrl-C to this process
# alone: what it starts is of other sessions, and is ended by it.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Real-time priorities, all above those of other programs on this machine.
COMPUTES, COMMUNICATES, WAKES = 1, 2, 3


class BedError(Exception):
    """What this machine does not allow, or a size that cannot be."""


def call(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise BedError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def inside(namespace):
    """What runs a command there. `ip netns exec` would hide control groups, for it
    mounts a /sys of the namespace."""
    return ["nsenter", f"--net=/run/netns/{namespace}"]


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def give(group, quota):
    write(f"{group}/cpu.rt_period_us", PERIOD)
    write(f"{group}/cpu.rt_runtime_us", quota)


class Bed:
    """`nodes` of `devices` ranks, each with `cores` of a core, and links of
    `intra` and `inter` bytes/s a rank, one direction. Entering builds it, leaving
    removes it, whatever happens between."""

    def __init__(self, nodes, devices, cores, intra, inter):
        self.nodes, self.devices, self.cores = nodes, devices, cores
        self.intra, self.inter = intra, inter
        self.ranks = nodes * devices
        if self.ranks * cores > MOST:
            raise BedError(f"{self.ranks} ranks of {cores} cores are more than the "
                           f"{MOST} that the kernel gives to all together")
        if self.ranks > 250:
            raise BedError(f"a bed has at most 250 ranks, not {self.ranks}")
        if not 0.02 <= cores:
            raise BedError(f"a rank has at least 0.02 of a core, not {cores}")
        self.beats = []
        self.lock = None

    def address(self, rank):
        """Ranks of a node have one subnet: what a filter tells them by."""
        return f"10.77.{rank // self.devices}.{rank % self.devices + 1}"

    def __enter__(self):
        if os.geteuid() != 0:
            raise BedError("namespaces and control groups need root")
        self.lock = open(LOCK, "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.lock.close()
            raise BedError("another test bed is being used on this machine")
        try:
            remove()  # of one that was killed
            self.connect()
            self.divide()
            self.beat()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # A second Ctrl-C waits until all is gone.
        waiting = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            for process in self.beats:
                process.kill()
                process.wait()
            self.beats = []
            remove()
            self.lock.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, waiting)

    # Links.

    def connect(self):
        call("ip", "netns", "add", SWITCH)
        switch = ("ip", "-n", SWITCH)
        call(*switch, "link", "set", "lo", "up")
        call(*switch, "link", "add", "bridge", "type", "bridge")
        call(*switch, "addr", "add", f"{SWITCH_ADDRESS}/16", "dev", "bridge")
        call(*switch, "link", "set", "bridge", "up")
        for rank in range(self.ranks):
            self.plug(rank)

    def plug(self, rank):
        name, port = f"{PREFIX}-{rank}", f"port{rank}"
        call("ip", "netns", "add", name)
        own = ("ip", "-n", name)
        call("ip", "-n", SWITCH, "link", "add", port, "type", "veth", "peer", "name",
             "eth0", "netns", name)
        call(*own, "link", "set", "lo", "up")
        for where, device in ((name, "eth0"), (SWITCH, port)):
            call("ip", "-n", where, "link", "set", "dev", device, "gso_max_size",
                 str(SEGMENT))
        call(*own, "addr", "add", f"{self.address(rank)}/16", "dev", "eth0")
        call("ip", "-n", SWITCH, "link", "set", port, "master", "bridge", "up")
        call(*own, "link", "set", "eth0", "up")
        # What it sends is told by where it goes, what it receives by its origin.
        self.limit(name, "eth0", rank, "dst")
        self.limit(SWITCH, port, rank, "src")

    def limit(self, namespace, device, rank, end):
        """Two rates; what goes to the switch itself, the launcher's, has none."""
        def tc(*command):
            call("tc", "-n", namespace, *command)

        tc("qdisc", "add", "dev", device, "root", "handle", "1:", "htb")
        for number, rate in ((1, self.intra), (2, self.inter)):
            tc("class", "add", "dev", device, "parent", "1:", "classid",
               f"1:{number}", "htb", "rate", f"{int(rate * 8)}bit", "burst",
               str(SEGMENT), "cburst", str(SEGMENT), "quantum", str(SEGMENT))
        own = f"10.77.{rank // self.devices}.0/24"
        for order, (subnet, target) in enumerate(
                ((f"{SWITCH_ADDRESS}/32", "1:0"), (own, "1:1"),
                 ("10.77.0.0/16", "1:2")), 1):
            tc("filter", "add", "dev", device, "parent", "1:", "protocol", "ip",
               "prio", str(order), "u32", "match", "ip", end, subnet, "flowid",
               target)

    # Processors.

    def divide(self):
        if not os.path.isdir(os.path.dirname(GROUPS)):
            raise BedError("there is no cpu control group of version 1 at "
                           f"{os.path.dirname(GROUPS)}")
        os.makedirs(MEMBERS)
        os.makedirs(GROUPS)
        each = round(PERIOD * self.cores)
        give(GROUPS, each * self.ranks)
        for rank in range(self.ranks):
            os.makedirs(f"{GROUPS}/{rank}")
            give(f"{GROUPS}/{rank}", each)

    def beat(self):
        for core in sorted(os.sched_getaffinity(0)):
            self.beats.append(subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "metronome", str(core)],
                start_new_session=True))

    # Programs.

    def launch(self, ranks, arguments, folder, timeout):
        """Runs a process for each of the named ranks, in their order, over MPI.
        Returns what it has printed; all that it has started has ended then."""
        hosts = os.path.join(folder, "hosts")
        write(hosts, "".join(f"{self.address(rank)} slots=1\n" for rank in ranks))
        agent = f"{sys.executable} {os.path.abspath(__file__)} agent"
        command = [
            *inside(SWITCH), "mpirun", "--allow-run-as-root",
            "--hostfile", hosts, "-n", str(len(ranks)), "--map-by", "slot",
            "--bind-to", "none", "--mca", "plm_rsh_agent", agent, "--mca",
            "orte_keep_fqdn_hostnames", "1", "--mca", "pml", "ob1", "--mca", "btl",
            "tcp,self", "--mca", "btl_tcp_if_include", "10.77.0.0/16", "--mca",
            "oob_tcp_if_include", "10.77.0.0/16", "--mca",
            "odls_base_sigkill_timeout", "0", sys.executable,
            os.path.abspath(__file__), "rank", *arguments]
        for number in ranks:
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{MEMBERS}/{number}")
        with open(os.path.join(folder, "said.txt"), "w+") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said,
                                       stdin=subprocess.DEVNULL,
                                       start_new_session=True)
            try:
                code = self.attend(process, said.name, ranks, timeout)
            except BaseException:
                process.kill()
                process.wait()
                end_members()
                raise
            said.seek(0)
            text = said.read()
        if code != 0:
            raise BedError(f"{' '.join(arguments)} ended with {code}:\n{text}")
        return text

    def attend(self, process, said, ranks, timeout):
        """Waits for the launcher. Processes start at full speed, and get their parts
        of a core when the run has said what it is going to do."""
        end, waits = time.monotonic() + timeout, True
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(0.02 if waits else 0.2)
            if time.monotonic() > end:
                raise BedError(f"no end after {timeout} seconds")
            if waits:
                with open(said) as file:
                    waits = READY not in file.read()
                if not waits:
                    for number in ranks:
                        throttle(number)


def throttle(number):
    """The thread that calls MPI, the first one that a process starts, goes before
    those that compute: at an equal priority it would wait for them."""
    with open(f"{MEMBERS}/{number}") as file:
        member = file.read()
    write(f"{GROUPS}/{number}/cgroup.procs", member)
    for i, thread in enumerate(sorted(map(int, os.listdir(f"/proc/{member}/task")))):
        priority = COMMUNICATES if i == 1 else COMPUTES
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))


# What removes, also what another process has left.


def namespaces():
    names = [line.split()[0] for line in call("ip", "netns", "list").splitlines()]
    return [name for name in names if name.startswith(PREFIX + "-")]


def members_of_groups():
    members = set()
    if os.path.isdir(GROUPS):
        for group in os.listdir(GROUPS):
            path = f"{GROUPS}/{group}/cgroup.procs"
            if os.path.isfile(path):
                with open(path) as file:
                    members.update(file.read().split())
    return members


def end_members():
    """Ends what runs in the bed's namespaces and groups. Only what the bed has
    started is there."""
    while True:
        members = members_of_groups()
        for name in namespaces():
            members.update(call("ip", "netns", "pids", name).split())
        if not members:
            return
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(member), signal.SIGKILL)
        time.sleep(0.05)


def remove():
    end_members()
    for name in namespaces():
        call("ip", "netns", "del", name)
    if os.path.isdir(GROUPS):
        for group in os.listdir(GROUPS):
            if os.path.isdir(f"{GROUPS}/{group}"):
                os.rmdir(f"{GROUPS}/{group}")
        os.rmdir(GROUPS)
    shutil.rmtree(MEMBERS, ignore_errors=True)


# What runs inside.


def metronome(core):
    """Wakes ten times a millisecond before all else, and ends with its parent."""
    parent = os.getppid()
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(WAKES))
    while os.getppid() == parent:
        for _ in range(10000):
            time.sleep(0.0001)


def agent(address, command):
    """Stands for rsh: runs a command in the namespace that has an address."""
    for name in namespaces():
        if f" {address}/" in call("ip", "-n", name, "-o", "addr"):
            os.execvp("nsenter", [*inside(name), "unshare", "--uts", "sh", "-c",
                                  f"hostname {address}; {' '.join(command)}"])
    sys.exit(f"no namespace has the address {address}")


def rank(command):
    """Says which process it is, stays on one core, and becomes the command."""
    name = call("ip", "netns", "identify", str(os.getpid())).strip()
    number = int(name.rpartition("-")[2])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    write(f"{MEMBERS}/{number}", os.getpid())
    os.execvp(command[0], command)


if __name__ == "__main__":
    role = sys.argv[1]
    if role == "metronome":
        metronome(int(sys.argv[2]))
    elif role == "agent":
        agent(sys.argv[2], sys.argv[3:])
    elif role == "rank":
        rank(sys.argv[2:])
    elif role == "remove":
        remove()
