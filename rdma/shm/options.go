package shm

import (
	"os"
	"time"
)

// Trust says whom a fabric lets see its memory, and whose it looks at.
type Trust uint8

const (
	// SameUser: both processes have the same user id. The default.
	SameUser Trust = iota
	// Trusted: whoever can reach the socket may connect, and a socket is believed
	// that belongs to us, to root or to the owner of Dir. A mapping
	// cannot be taken back, so this is the operator's word for all of them.
	Trusted
)

// Options of a Fabric. The zero value is what a program wants.
type Options struct {
	// Dir is the directory of the sockets. "": the first of those that Dirs
	// names which is there or can be made.
	Dir string
	// Trust says who may connect.
	Trust Trust
	// ReadDepth is the device's limit for IRD and ORD; 0 means 128.
	ReadDepth int
	// MaxQP bounds the QPs of a device; 0 means 16384.
	MaxQP int
	// MaxPending bounds the connections that are being set up; 0 means 256.
	MaxPending int
	// SetupTimeout bounds each handshake; 0 means 5 s.
	SetupTimeout time.Duration
	// MaxMaps bounds the regions of peers that all connections of the fabric map
	// together; 0 means 32768, half of what Linux lets a process map by default.
	MaxMaps int
	// MaxAcceptedBytes bounds the memory of peers that all connections which the
	// fabric has accepted map together, bytes; 0 means 16 GiB. One connection may
	// have 1 GiB of it. What is beyond is read through the rings.
	MaxAcceptedBytes int64
	// Proof opens a file for each connection that is accepted. The peer is given
	// it and closes it only once it has unmapped everything of ours: a lock on it
	// (flock) lasts until nobody has the memory any more. nil: none.
	Proof func() (*os.File, error)
}

// Defaults and names.
const (
	defaultReadDepth    = 128
	defaultMaxQP        = 1 << 14
	defaultMaxPending   = 256
	defaultMaxMaps      = 32 << 10
	defaultMaxAccepted  = 16 << 30
	defaultSetupTimeout = 5 * time.Second

	fabricName = "shm"
	deviceName = "shm0"
)

func (o Options) withDefaults() Options {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.ReadDepth, defaultReadDepth)
	set(&o.MaxQP, defaultMaxQP)
	set(&o.MaxPending, defaultMaxPending)
	set(&o.MaxMaps, defaultMaxMaps)
	if o.MaxAcceptedBytes == 0 {
		o.MaxAcceptedBytes = defaultMaxAccepted
	}
	if o.SetupTimeout == 0 {
		o.SetupTimeout = defaultSetupTimeout
	}
	return o
}
