package verbs

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rdmakv/rdmakv/rdma"
)

// Ways to connect.
const (
	ConnectCM  = "cm"  // librdmacm
	ConnectTCP = "tcp" // bare verbs, data of the QPs exchanged over TCP
)

// Options of a Fabric. The zero value suits most programs; everything else
// is for networks with other habits and for tests.
type Options struct {
	// Connect is ConnectCM (also when empty) or ConnectTCP. Both ends must
	// use the same.
	Connect string
	// Port of the device, from 1; 0 chooses the first that is active.
	Port int
	// GIDIndex names the entry of the port's GID table to use; 0 or -1 chooses:
	// the one of the local address, RoCE v2 before v1, IPv4 before IPv6. With
	// ConnectCM it decides from which address Connect dials.
	GIDIndex int
	// PKeyIndex names the partition key to use with ConnectTCP.
	PKeyIndex int
	// TrafficClass is DSCP and ECN of the packets (RoCE v2: the IP header's
	// type of service); 0 leaves it to the kernel.
	TrafficClass uint8
	// ServiceLevel is 0 to 15: InfiniBand's SL, RoCE's Ethernet priority.
	ServiceLevel uint8
	// PathMTU bounds the payload of a packet: 256, 512, 1024, 2048 or 4096
	// bytes; 0 means what port and path allow.
	PathMTU int
	// Timeout is how long an acknowledgement may take before a packet is sent
	// again, as a power of two of 4.096 us; 0 means 14 (67 ms).
	Timeout uint8
	// ProbeRights has Open find out whether the device keeps to the remote rights
	// of queue pairs (QP.SetAccess), by connecting two of its own and READing from
	// one: some 10 ms. DeviceAttr then has CapAccessIgnored or CapNoRevoke where it
	// does not, or where the probe failed. It is for programs that let unknown
	// peers connect; a program that only dials needs no such protection.
	ProbeRights bool
	// RetryCount is how often a packet is sent again; 0 means 6, which is also the
	// limit: some devices take 7 for ever.
	RetryCount uint8
	// RNRRetry is how often a SEND is repeated that found no receive. 0 means 7,
	// which is without end: the deadline of the call ends it.
	RNRRetry uint8
	// MinRNRTimer is how long the peer waits before it repeats such a SEND, in the
	// code of ibv_modify_qp(3); 0 means 12 (0.64 ms).
	MinRNRTimer uint8
	// MaxPending bounds the connection requests that wait at each listener;
	// 0 means 1024. Beyond it they are refused.
	MaxPending int
	// SetupTimeout bounds each handshake; 0 means 5 s.
	SetupTimeout time.Duration
	// Logger gets choices of devices and events of ports; nil: they are dropped.
	Logger *slog.Logger
}

// Defaults and bounds of Options.
const (
	defaultTimeout      = 14
	defaultRetryCount   = 6
	maxRetryCount       = 6
	defaultRNRRetry     = 7
	defaultMinRNRTimer  = 12
	defaultMaxPending   = 1024
	defaultSetupTimeout = 5 * time.Second

	maxTimeout      = 31
	maxMinRNRTimer  = 31
	maxServiceLevel = 15
)

func (o Options) withDefaults() Options {
	if o.Connect == "" {
		o.Connect = ConnectCM
	}
	if o.GIDIndex == 0 {
		o.GIDIndex = -1
	}
	set := func(p *uint8, v uint8) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Timeout, defaultTimeout)
	set(&o.RetryCount, defaultRetryCount)
	set(&o.RNRRetry, defaultRNRRetry)
	set(&o.MinRNRTimer, defaultMinRNRTimer)
	if o.MaxPending == 0 {
		o.MaxPending = defaultMaxPending
	}
	if o.SetupTimeout == 0 {
		o.SetupTimeout = defaultSetupTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// validate names the first option that is out of range.
func (o Options) validate() error {
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{o.Connect != ConnectCM && o.Connect != ConnectTCP, fmt.Sprintf("Connect %q is neither %q nor %q", o.Connect, ConnectCM, ConnectTCP)},
		{o.Port < 0 || o.Port > 255, fmt.Sprintf("Port %d is not within 0 and 255", o.Port)},
		{o.GIDIndex < -1 || o.GIDIndex > 255, fmt.Sprintf("GIDIndex %d is not within -1 and 255", o.GIDIndex)},
		{o.PKeyIndex < 0 || o.PKeyIndex > 65535, fmt.Sprintf("PKeyIndex %d is not within 0 and 65535", o.PKeyIndex)},
		{o.ServiceLevel > maxServiceLevel, fmt.Sprintf("ServiceLevel %d is above %d", o.ServiceLevel, maxServiceLevel)},
		{o.PathMTU != 0 && mtuOf(o.PathMTU) == 0, fmt.Sprintf("PathMTU %d is not 256, 512, 1024, 2048 or 4096", o.PathMTU)},
		{o.Timeout > maxTimeout, fmt.Sprintf("Timeout %d is above %d", o.Timeout, maxTimeout)},
		{o.RetryCount > maxRetryCount, fmt.Sprintf("RetryCount %d is above %d: with 7 some devices repeat for ever", o.RetryCount, maxRetryCount)},
		{o.RNRRetry > 7, fmt.Sprintf("RNRRetry %d is above 7", o.RNRRetry)},
		{o.MinRNRTimer > maxMinRNRTimer, fmt.Sprintf("MinRNRTimer %d is above %d", o.MinRNRTimer, maxMinRNRTimer)},
		{o.MaxPending < 1, fmt.Sprintf("MaxPending %d is not positive", o.MaxPending)},
		{o.SetupTimeout < 0, fmt.Sprintf("SetupTimeout %v is negative", o.SetupTimeout)},
	} {
		if c.bad {
			return fmt.Errorf("%w: %s", rdma.ErrInvalid, c.text)
		}
	}
	return nil
}
