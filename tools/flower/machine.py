"""A machine of its own: a file system, users, processes and a systemd, in Linux namespaces.

Its root is an empty folder in memory that sees of the host only /usr and what is lent to it, both read-only.
So nothing that is done on it, not even by its root, reaches the host. Machines share the network of whoever
makes them. Only the standard library is used.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

PATIENCE = 60.0
PROGRAMS = ["unshare", "nsenter", "pivot_root", "mount", "runuser", "useradd", "tar", "ip"]
SYSTEMD = pathlib.Path("/usr/lib/systemd/systemd")
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# The units that a machine knows from the start. None of Debian's own is among them but the journal's.
TARGETS = ["sysinit", "basic", "shutdown", "umount", "sockets", "network", "network-online", "multi-user"]
JOURNAL = ["systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket"]

# Makes the root and goes there. $1: an empty folder; $2: where cgroups are told from; the rest: what is lent.
MAKE = r"""
set -eu
root=$1; cgroups=$2; shift 2
mount -t tmpfs -o mode=755 machine "$root"; cd "$root"
mkdir usr etc dev proc sys run tmp var opt old; chmod 1777 tmp
for link in bin sbin lib lib64; do ln -s usr/$link $link; done
mount --rbind /usr usr; mount -o remount,bind,ro usr
mount -t tmpfs -o mode=755 local usr/local; mkdir usr/local/bin
for lent; do
  mkdir -p ".$lent"; mount --rbind "$lent" ".$lent"; mount -o remount,bind,ro ".$lent"
done
mount -t tmpfs -o mode=755 dev dev
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
ln -s /proc/self/fd dev/fd; mkdir -m 1777 dev/shm
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
if [ "$cgroups" = unified ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
else
  mount -t tmpfs cgroups sys/fs/cgroup; mkdir sys/fs/cgroup/systemd sys/fs/cgroup/unified
  mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
  mount -t cgroup2 cgroup2 sys/fs/cgroup/unified
fi
mkdir -p root var/lib var/log etc/systemd/system; mkdir -m 1777 var/tmp; ln -s /run var/run
mkdir -p etc/alternatives; cp -a /etc/alternatives/. etc/alternatives/; cp /etc/ld.so.cache etc/
grep -E '^(root|nobody|systemd-journal):' /etc/passwd > etc/passwd || true
grep -E '^(root|tty|disk|adm|nogroup|systemd-journal):' /etc/group > etc/group
touch etc/shadow etc/gshadow; cp /etc/login.defs etc/
printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files\n' > etc/nsswitch.conf
mkdir etc/pam.d
printf 'auth sufficient pam_rootok.so\naccount required pam_permit.so\nsession required pam_permit.so\n' > etc/pam.d/runuser
hostname > etc/hostname; tr -d - < /proc/sys/kernel/random/uuid > etc/machine-id
"""
GO = r"""
pivot_root . old; umount -l /old
exec env -i PATH=/usr/local/bin:/usr/bin:/usr/sbin container=machine SYSTEMD_UNIT_PATH=/etc/systemd/system \
  /usr/lib/systemd/systemd --system --log-target=null --show-status=no
"""


def why_not():
    """Why no machine can be made here, or nothing."""
    if os.geteuid() != 0:
        return "only root may make machines in namespaces"
    lost = [name for name in PROGRAMS if not shutil.which(name)]
    if lost:
        return f"there is no {', '.join(lost)}"
    if not SYSTEMD.exists():
        return "there is no systemd (Debian: apt-get install systemd)"
    # A trial, in which nothing is done.
    tried = subprocess.run(["unshare", "--mount", "--pid", "--net", "--cgroup", "--fork", "true"], capture_output=True, text=True)
    return tried.stderr.strip() or None


class Machine:
    """One machine, running from the start until `stop`."""

    def __init__(self, name, hosts, lent=()):
        self.name = name
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"fedra-machine-{name}-"))
        is_unified = (CGROUPS / "cgroup.controllers").exists()
        trees = [CGROUPS] if is_unified else [CGROUPS / "systemd", CGROUPS / "unified"]
        self.cgroups = [tree / self.folder.name for tree in trees]
        for cgroup in self.cgroups:
            cgroup.mkdir()
        units = [f"printf '[Unit]\\nDefaultDependencies=no\\n' > etc/systemd/system/{it}.target" for it in TARGETS]
        units += [f"ln -s /usr/lib/systemd/system/{it} etc/systemd/system/{it}" for it in JOURNAL]
        units += ["ln -s multi-user.target etc/systemd/system/default.target"]
        units += ["mkdir etc/systemd/system/multi-user.target.wants"]
        units += [f"ln -s ../{JOURNAL[0]} etc/systemd/system/multi-user.target.wants/"]
        script = MAKE + "\n".join(units) + f"\nprintf '%s' '{hosts}' > etc/hosts\n" + GO
        enter = "; ".join(f"echo $$ > {cgroup}/cgroup.procs" for cgroup in self.cgroups)
        inside = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child", "--propagation", "private"]
        kind = "unified" if is_unified else "hybrid"
        inside += ["sh", "-c", f"hostname {name}\n" + script, "machine", str(self.folder), kind, *map(str, lent)]
        self.log = open(self.folder.with_suffix(".log"), "wb")
        self.keeper = subprocess.Popen(
            ["sh", "-c", f'{enter}; exec "$@"', "enter", *inside],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
        )
        self.pid = self._wait_for("its first process", self._first)
        self._wait_for("systemd", lambda: self.ask("systemctl is-system-running") == "running")

    def _first(self):
        children = pathlib.Path(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children").read_text().split()
        for pid in children:
            if os.readlink(f"/proc/{pid}/exe") == str(SYSTEMD):
                return int(pid)
        return None

    def _wait_for(self, what, is_so):
        until = time.monotonic() + PATIENCE
        while not (found := is_so()):
            if self.keeper.poll() is not None or time.monotonic() > until:
                said = self.folder.with_suffix(".log").read_text(errors="replace")
                raise AssertionError(f"{self.name}: waited in vain for {what}:\n{said}")
            time.sleep(0.05)
        return found

    def path(self, name):
        """A file of the machine, seen from here."""
        return pathlib.Path(f"/proc/{self.pid}/root") / name.lstrip("/")

    def command(self, script, user="root"):
        """The command that runs a script on it, in the home of a user, as a login does."""
        home = "/root" if user == "root" else f"/var/lib/{user}"
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-C", "-r", "-w", "env", "-i"]
        inside += [f"HOME={home}", "PATH=/usr/local/bin:/usr/bin:/usr/sbin", "NO_COLOR=1", "COLUMNS=200"]
        inside += ["PIP_DISABLE_PIP_VERSION_CHECK=1", "FLWR_TELEMETRY_ENABLED=0", "FLWR_DISABLE_UPDATE_CHECK=1"]
        shell = ["bash", "-eu", "-o", "pipefail", "-c", f"cd {home}\n{script}"]
        return inside + (shell if user == "root" else ["runuser", "-u", user, "--", *shell])

    def ask(self, script):
        """What a script says, whatever its status."""
        return subprocess.run(self.command(script), capture_output=True, text=True).stdout.strip()

    def unit(self, name):
        """What systemd says of a unit."""
        said = self.ask(f"systemctl show {name} -p ActiveState,Result,ExecMainStatus,NRestarts,MainPID")
        return dict(line.split("=", 1) for line in said.splitlines())

    def stop(self):
        """Ends it and all that runs on it."""
        if self.keeper.poll() is None:
            os.killpg(self.keeper.pid, signal.SIGKILL)
        self.keeper.wait()
        self.log.close()
        for cgroup in self.cgroups:
            for _ in range(100):
                for below in [*sorted(cgroup.rglob("*/"), reverse=True), cgroup]:
                    try:
                        below.rmdir()
                    except OSError:
                        pass
                if not cgroup.exists():
                    break
                time.sleep(0.05)
        self.folder.with_suffix(".log").unlink()
        self.folder.rmdir()
