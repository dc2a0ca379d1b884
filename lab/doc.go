// Package lab boots virtual machines that have real RDMA devices, made by
// software, on any Linux on x86-64 with QEMU and Debian's packages, and breaks
// their network and their power as a test asks for.
//
//	 host process (go test, or the command lab)
//	+--------------------------------------------------------------+
//	|  Boot, NewCluster          ether.Switch     qmp    agent     |
//	+------|-----------------------|   |   |-------|--------|------+
//	       | starts           UDP  |   |   |  UDP  |        | virtio
//	       v               datagram|   |   |       |        | serial
//	+------------- QEMU (TCG) -----|---+   |-------|--------|------+
//	|                            eth0              |        |      |
//	|  Linux of Debian, not     10.77.0.N   pause, cut   lab-agent |
//	|  installed: kernel and    rxe0 or     the cable,      |      |
//	|  modules unpacked from    siw0        continue     programs, |
//	|  their package            (ACTIVE)                 in /mnt   |
//	+--------------------------------------------------------------+
//
// A guest is made of a kernel package that is downloaded and unpacked, and of an
// initial file system with programs and libraries of this machine (package
// image). All of it is kept below .cache/lab, so that booting takes the time in
// which an emulated processor boots a kernel. The guest's first program is
// init.sh; the host takes the guest for up when init.sh has seen the RDMA device
// ACTIVE. A guest without a device does not boot: nothing is ever skipped
// inside.
//
// Programs are started by the agent of a guest (package agent), from the host
// over a serial port that no broken network reaches, and from other guests over
// TCP. /mnt in the guest is a directory of the host; Guest.Stage copies programs
// from there to memory, from where they start several times as fast.
//
// Faults, and what a guest sees of them:
//
//   - Switch.Cut: frames vanish. Neither side is told; both run into time-outs.
//   - Switch.CutOneWay: as Cut, in one direction: requests come, answers do not.
//   - Switch.Lose: a share of the frames vanishes, and RC retransmits.
//   - Guest.SetLink: the cable is out. The kernel sees it, the RDMA port goes
//     DOWN, and programs get an asynchronous event.
//   - Guest.Pause: the machine stands still, as one that is overloaded or being
//     moved; afterwards it can tell only from the clock.
//   - Guest.Kill: the power is cut. What was synced to Config.Disk stays, and
//     Cluster.Reboot boots the guest anew with it.
//   - Process.Signal (package agent): SIGKILL and SIGSTOP of one program, whose
//     kernel keeps running and may still answer READs.
//
// A guest with Config.Count measures work and not time: its clocks advance by 1 ns
// with each instruction that its one processor carries out, whatever the host does
// meanwhile. What a program of it takes for nanoseconds are instructions, its own,
// its peer's and the kernel's, and runs agree to about a percent. When the processor has
// nothing to do, the clocks jump to the next deadline. So nothing in such a guest may
// wait for the host with a deadline: programs are staged before they are started.
//
// Every guest ends with the process that booted it, however that ends: QEMU is
// killed with its parent (prctl(2), PR_SET_PDEATHSIG), and powers off when the
// host's end of the serial port is gone.
//
// All traffic between guests is UDP datagrams on the loopback interface of the
// host, between sockets connected to each other. Nothing listens outside.
package lab
