package rdma

import "time"

// A Spinner is a CQ that can poll for a while by itself. On hardware a call of
// ibv_poll_cq(3) takes less time than the way from Go to C and back. A goroutine
// that spins therefore makes one call for some microseconds of polling instead of
// one call for each look. A CQ that is polled without leaving Go need not be a
// Spinner.
//
// The CQ of a fabric in software may be a Spinner for another reason: Spin does
// the fabric's work in the calling goroutine, for instance reads its sockets,
// instead of waiting until another goroutine gets a processor.
type Spinner interface {
	// Spin is CQ.Poll that goes on looking for up to d while the queue is empty;
	// then it returns 0 and no error. It may return earlier. It is safe for
	// concurrent use with everything but itself and Poll: no other goroutine may
	// poll the queue meanwhile.
	Spin(wcs []WC, d time.Duration) (n int, err error)
}

// A SpinAdviser is a CQ that knows for how long spinning costs less than sleeping on
// its fabric.
type SpinAdviser interface {
	// DefaultSpin is for how long one wait spins at most, unless the program is
	// configured otherwise. If it is 0, waits do not spin.
	DefaultSpin() time.Duration
}

// A SpinPoster is a QP that can post and then poll a CQ within one call: one way
// from Go to C and back instead of two.
type SpinPoster interface {
	// PostSendSpin is QP.PostSend and then, if all of wrs were taken, Spinner.Spin
	// for up to d of cq, which must be the QP's CQ for sends. It returns how many
	// requests were posted and how many completions were put into wcs; err is that
	// of the post. It reports no error of the CQ: the next Poll does. A fabric that
	// cannot do both at this moment posts, and returns polled 0. Like Spin it is for
	// one goroutine at a time, the one that polls cq.
	PostSendSpin(wrs []SendWR, cq CQ, wcs []WC, d time.Duration) (posted, polled int, err error)
}

// A SpinReader is a QP whose READs can be prepared (CapSpinRead): where each lands is
// settled before, and one call posts it and polls the QP's CQ for sends for its
// completion. A place for one READ at a time is a sink, and is named by its number.
//
//	        ReadSpin ──┬── SpinRefused   nothing was posted
//	sink:              ├── SpinDone      the READ has ended
//	the caller's ──────┴── SpinPending   the sink is the fabric's, until
//	                         AwaitSpin ─── SpinDone, or
//	                         a poll of the CQ brings the completion under the READ's ID
//
// ReadSpin and AwaitSpin are for one goroutine at a time, the one that polls the CQ;
// they are safe for concurrent use with everything else. They do not allocate. While
// they poll they hold a thread, for a fraction of a millisecond at most.
type SpinReader interface {
	// PrepareSinks makes sinks, once for a QP: sinks[i] is number i. The regions need
	// AccessLocalWrite, and stay registered until the QP is closed. The READs take
	// their place in the send queue and in the CQ as others do. It fails with
	// ErrInvalid, ErrNotSupported or, on a queue pair that was closed, ErrNotConnected,
	// or with what the device says.
	PrepareSinks(sinks []SGE) error
	// ReadSpin READs n bytes at remote, from 1 to the length of the sink, and polls
	// for up to d. The READ is signaled and completes under id, which must not be 0.
	//
	// SpinRefused: nothing was posted, because an argument is out of range, the QP is not
	// connected or is in ERR, its queue is full, or the CQ is not to be polled at this
	// moment; a post of the same READ may work, or says why not.
	ReadSpin(sink int, id uint64, remote RemoteAddr, n uint32, wcs []WC, d time.Duration) SpinResult
	// AwaitSpin polls for up to d for the end of a READ that is pending.
	AwaitSpin(sink int, id uint64, wcs []WC, d time.Duration) SpinResult
}

// A SpinResult is what ReadSpin or AwaitSpin has come to.
type SpinResult struct {
	State  SpinState
	Status Status // of a READ that is done
	// Others is how many completions of other requests were polled; they are in wcs.
	// If there are any the call returns at once.
	Others int
	Polled int64 // as WC.Polled, of a READ that is done
}

// A SpinState says how a READ into a sink stands.
type SpinState uint8

const (
	SpinRefused SpinState = iota // not posted
	SpinPending                  // posted, and not completed
	SpinDone                     // completed
)

// A DirectReader is a QP whose READs the caller can do itself. Where the peer's
// memory is mapped into this process (CapMapped), a READ is a copy, which needs no
// work request and no completion. A caller that would post one READ and wait for
// it calls ReadDirect instead; PostSend of OpRDMARead works beside it.
type DirectReader interface {
	// ReadDirect copies len(sink) bytes of the peer's memory at remote into sink.
	// The length and both addresses must be multiples of 8. sink may be any memory
	// of the caller's, registered or not, and is the caller's again on return. As
	// with every READ, each aligned word of 8 bytes is loaded at once (in software: of
	// the first mem.WholeWords bytes), the order of the words is not defined, and
	// nothing larger than a word is atomic. The checks
	// are those of a posted READ: the rights of QP and region, the rkey, the bounds.
	//
	// ReadDirect returns one of three kinds of status. StatusSuccess: the bytes are
	// in sink. StatusLocQPOpErr: the region is not mapped here, or not yet; the QP
	// lives, and the caller must post the READ instead. Any other status is the one
	// with which a posted READ would have completed: the QP is in ERR, and the
	// content of sink is undefined.
	//
	// It does not wait and does not allocate. It is safe for concurrent use, also
	// with Close and Disconnect.
	ReadDirect(sink []byte, remote RemoteAddr) Status
}

// A DirectPrefetcher is a DirectReader that can be told of the READs to come. A copy from memory that
// no cache of the processor holds takes as long as the memory needs to answer; of many copies that are
// announced together the processor waits for a dozen at a time.
type DirectPrefetcher interface {
	// PrefetchDirect has the processor begin to fetch the first n bytes at remote, or some of them. It is a hint:
	// nothing is checked, copied or changed, it waits for nothing, and an address that may not be read
	// is passed over. It does not allocate, and is safe for concurrent use as ReadDirect is.
	PrefetchDirect(remote RemoteAddr, n int)
}

// A PortWatcher is a Device that reports changes of its ports. When a port has gone
// down and come back, what the kernel needs in order to make connections there may
// have come back without working; a server then tries a connection to itself.
type PortWatcher interface {
	// PortChanges returns a channel that has a value after a port has come back or
	// has changed: one value for any number of changes since the last was taken. It
	// is the same channel at each call, and is never closed. It is nil if the device
	// cannot connect to itself, because then the server could try nothing.
	PortChanges() <-chan struct{}
}
