package rdma

// A DirectReader is a QP whose READs the caller can do itself: on a fabric where
// the peer's memory is mapped, a READ is a copy, and neither a doorbell nor a
// completion has anything to add. A caller that has one READ to do and would wait
// for it does it with ReadDirect; PostSend of OpRDMARead works beside it.
type DirectReader interface {
	// ReadDirect copies len(sink) bytes of the peer's memory at remote into sink.
	// The length and both addresses are multiples of 8; sink is any memory of the
	// caller's, registered or not, and is the caller's again on return. Each aligned
	// word of 8 bytes is loaded at once, in no promised order, and nothing more is
	// atomic, as with every READ. The checks are those of a posted READ: the rights
	// of QP and region, the rkey, the bounds.
	//
	// It returns StatusSuccess; or StatusLocQPOpErr if this region is not mapped
	// here (yet), which says nothing about it: the QP lives, and the READ is to be
	// posted; or the status with which the READ would have completed: the QP is in
	// ERR then, the content of sink undefined. It does not wait and does not
	// allocate. Safe for concurrent use, also with Close and Disconnect.
	ReadDirect(sink []byte, remote RemoteAddr) Status
}
