package shm

import (
	"os"
	"time"
)

// Trust says which users' processes a fabric lets see its memory, and whose
// memory it looks at.
type Trust uint8

const (
	// SameUser: both processes have the same user id. The default.
	SameUser Trust = iota
	// Trusted: every process that can reach the socket may connect, and the
	// fabric trusts a socket that belongs to our user, to root or to the owner
	// of Dir. A mapping cannot be taken back, so the operator vouches for all of
	// them by this setting.
	Trusted
)

// Options of a Fabric. The zero value suits most programs.
type Options struct {
	// Dir is the directory of the sockets. If it is empty, the fabric takes the
	// first directory of Dirs that is there or can be made.
	Dir string
	// Trust says which users may connect.
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
	// have 1 GiB of it. Regions beyond it are read through the rings.
	MaxAcceptedBytes int64
	// Proof opens a file for each connection that is accepted. The peer is given
	// it and closes it only once it has unmapped all memory of this fabric: a lock on it
	// (flock) lasts until no process has the memory any more. If Proof is nil
	// there is no such file.
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
