#!/bin/busybox sh
# The first process of a guest of the lab. It sets up what every Linux has, the
# RDMA device that was asked for, and then runs the agent, with which the guest
# lives and dies. The kernel hands over the words of its command line that it
# does not know as environment: the LAB_ variables below.
#
#   LAB_NAME   host name               LAB_IP    last number of 10.77.0.N
#   LAB_RDMA   rxe, siw or none        LAB_MTU   MTU of the Ethernet devices
#   LAB_PORTS  RDMA devices, 1 to 4    LAB_HUGE  2 MiB pages to set aside
#   LAB_PEERS  guests in /etc/hosts    LAB_DISK  1: /dev/vda is mounted at /data
#
# Lines that begin with "lab:" are read by the host: progress, and what failed.
export PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root TMPDIR=/tmp LANG=C

say() { echo "lab: $*" >/dev/console; }
clock() {
	read -r seconds _ </proc/uptime
	say "clock $seconds"
}
fail() {
	say "FAILED: $*"
	dmesg 2>/dev/null | tail -15 >/dev/console
	poweroff -f
}

/bin/busybox dmesg -n 4 # the kernel tells of errors from now on; the console is for lines of this script
/bin/busybox --install -s /bin 2>/dev/null # all that are not there yet
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
clock # the host compares, so that no deadline in here is worth nothing
mkdir -p /dev/pts /dev/shm /dev/hugepages
mount -t devpts -o ptmxmode=666 devpts /dev/pts
for dir in /dev/shm /tmp /run; do mount -t tmpfs -o mode=1777 tmpfs $dir; done
mount -t hugetlbfs none /dev/hugepages
ln -sf /proc/self/fd /dev/fd
ulimit -l unlimited
ulimit -n 65536
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6_dad 2>/dev/null
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
echo "${LAB_HUGE:-0}" >/proc/sys/vm/nr_hugepages
hostname "$LAB_NAME"

modprobe -a $(cat /lib/modules/load) 2>/tmp/modprobe || fail "modules: $(cat /tmp/modprobe)"
for ko in /lib/modules/extra/*.ko; do
	[ ! -e "$ko" ] || insmod "$ko" || fail "module $ko"
done
say "modules are loaded"

mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none host /mnt || fail "the shared directory"
if [ -n "$LAB_DISK" ]; then
	mount -t ext4 /dev/vda /data || fail "the disk"
fi

# The names of all guests, so that a test says g2 and not a number.
{
	echo "127.0.0.1 localhost"
	echo "::1 localhost"
	i=1
	while [ $i -le "${LAB_PEERS:-1}" ]; do
		echo "10.77.0.$i g$i"
		i=$((i + 1))
	done
} >/etc/hosts

# busybox has an ip of its own, which its shell prefers: hence the full path.
ip=/usr/sbin/ip
$ip link set lo up
n=0
while [ $n -lt "${LAB_PORTS:-1}" ]; do
	dev=eth$n
	[ $n = 0 ] || $ip link add $dev type dummy || fail "network device $dev"
	$ip link set $dev mtu "$LAB_MTU" || fail "MTU $LAB_MTU of $dev"
	$ip addr add 10.$((77 + n)).0.$LAB_IP/24 dev $dev
	$ip -6 addr add fd00:$((77 + n))::$LAB_IP/64 dev $dev nodad
	$ip link set $dev up || fail "network device $dev"
	[ "$LAB_RDMA" = none ] || rdma link add $LAB_RDMA$n type $LAB_RDMA netdev $dev ||
		fail "the kernel makes no $LAB_RDMA device: is its module loaded?"
	n=$((n + 1))
done

# A device that is there but not ACTIVE would make every test wait for nothing.
n=0
while [ "$LAB_RDMA" != none ] && [ $n -lt "${LAB_PORTS:-1}" ]; do
	tries=0
	until rdma link show $LAB_RDMA$n/1 2>/dev/null | grep -q 'state ACTIVE'; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || fail "$LAB_RDMA$n is not ACTIVE: $(rdma link show 2>&1)"
		sleep 0.1
	done
	say "$(rdma link show $LAB_RDMA$n/1)"
	n=$((n + 1))
done

[ -e /dev/vport0p1 ] || fail "no serial port to the host"
clock
say ready
/usr/bin/lab-agent -serial /dev/vport0p1 -listen :7017 2>/dev/console
echo "the agent has ended" >/dev/console
poweroff -f
