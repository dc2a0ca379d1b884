// Package ibv is libibverbs and librdmacm in Go: the objects and calls of
// rdma-core under their own names, and nothing on top of them. Package verbs
// makes an rdma.Fabric of it; a program that has to move a queue pair by
// hand, attribute by attribute, uses it directly.
//
// # How to read it
//
// Each object has its file: device.go, pd.go, cq.go, srq.go, qp.go, cmid.go and
// cm.go; types.go, wc.go and events.go are the words that they speak. object.go and
// notifier.go are beneath all of them (closing and waiting); load.go and the
// sys_*_unsafe.go files are the way into C, errors.go and hint.go what an error
// says.
//
// # One binary
//
// All calls into rdma-core stand in the C files of this package (shim.h lists
// them). They open its libraries at run time, so that a program needs neither to
// start: Load says what is missing and what to install. They need no header of
// rdma-core either: what they use of its binary interface is declared in abi.h,
// abi_calls.h and abi_constants.h, and a test compares these with the headers
// where they are installed. Without cgo, on other processors than amd64 and
// arm64, and on other systems than Linux the same API is there, and every way into
// it fails with ErrUnavailable.
//
// The first Load of a process sets RDMAV_ALLOW_DISASSOC_DESTROY in the environment
// of the C library, unless it is set: without it, what was made on a device that
// has been removed cannot be closed. Before version 2.41 glibc's setenv is no safe
// neighbour of a getenv in another thread of C, such as one of Go's resolver by
// cgo. A program whose C libraries have threads of their own calls Load before they
// start, or is started with the variable set; then nothing is changed.
//
// # Objects, descriptors and events
//
// A tree shows what is made of what. A parent cannot be closed before its
// children: Close says EBUSY, and which are open.
//
//	Context                a device; fd: asynchronous events ---> AsyncEvent
//	|                      (port down, device lost, QP fatal, SRQ limit,
//	|                      send queue drained, GID change)
//	+-- PD                 what may reach what
//	|   +-- MR             memory ............ named in work requests, by lkey
//	|   |                                      here and by rkey from afar
//	|   +-- SRQ            receives shared by QPs ............. PostRecv
//	|   +-- QP             uses a CQ for sends, one (often the
//	|                      same) for receives, and maybe an SRQ:
//	|                      neither closes before it . PostSend, PostRecv
//	+-- CompChannel        fd: "a CQ has something" ------------> Get
//	+-- CQ                 completions: Poll, Spin; reports to a
//	                       CompChannel if it has one and is armed (ReqNotify)
//
//	EventChannel           fd: CM events -----------------------> Get
//	+-- CMID               a listener, or one end of a connection; the QP is
//	                       made as above and known to it by its number
//
// The three kinds of wait sleep in Go's netpoller, on duplicates of the
// descriptors, and obey their context; Close ends them with ErrClosed. Every
// event is acknowledged before it is handed out, since ibv_destroy_cq,
// ibv_destroy_qp and rdma_destroy_id wait for that.
//
// A device that is unplugged says AsyncDeviceFatal, and its ids get
// CMDeviceRemoval: close all that is made of it. Drivers that cannot take a
// device away from under a program (rxe) wait for that; librdmacm itself keeps
// what it was bound to open until the process ends.
//
// # Concurrency
//
// All methods are safe for concurrent use, Close among them: a method of a
// closed object fails with ErrClosed. A batch costs one read lock of its queue
// and one call into C, and allocates nothing. The kernel serves only threads
// with the credentials that opened a device: a program that gives up rights
// does so before.
//
// # Memory
//
// Memory is named by address, as in C, and the device knows nothing of Go's
// collector. Register mapped memory, not Go's heap. What a posted request names
// is the device's until its completion was polled; an MR's pages stay mapped
// until its Close returned.
//
// # States of a queue pair
//
// A QP begins in RESET and is moved by Modify. For type RC each transition
// needs the attributes in the middle and takes those on the right
// (ibv_modify_qp(3); IB specification, volume 1, table "QP State Transition
// Properties"):
//
//	to     required                                  optional
//	-----  ----------------------------------------  ----------------------------
//	INIT   STATE PKEY_INDEX PORT ACCESS_FLAGS
//	INIT   (again)                                   PKEY_INDEX PORT ACCESS_FLAGS
//	RTR    STATE AV PATH_MTU DEST_QPN RQ_PSN         ALT_PATH PKEY_INDEX
//	       MAX_DEST_RD_ATOMIC MIN_RNR_TIMER          ACCESS_FLAGS
//	RTS    STATE SQ_PSN MAX_QP_RD_ATOMIC RETRY_CNT   CUR_STATE ALT_PATH
//	       RNR_RETRY TIMEOUT                         ACCESS_FLAGS MIN_RNR_TIMER
//	                                                 PATH_MIG_STATE
//	RTS    (again, or from SQD)                      CUR_STATE ALT_PATH
//	                                                 ACCESS_FLAGS MIN_RNR_TIMER
//	                                                 PATH_MIG_STATE
//	SQD    STATE                                     EN_SQD_ASYNC_NOTIFY
//	ERR    STATE  (from every state)
//	RESET  STATE  (from every state)
//
// Receives may be posted from INIT on and are answered from RTR on; sends may
// be posted from RTS on. In ERR everything posted is flushed: it completes with
// StatusWRFlushErr.
//
// What the attributes mean, and what is wise:
//
//	ACCESS_FLAGS        what the peer may do here: REMOTE_READ, REMOTE_WRITE,
//	                    REMOTE_ATOMIC. Both the QP and the MR have to allow it.
//	                    It can be granted and revoked in RTS.
//	AV                  the way to the peer: AHAttr. RoCE needs IsGlobal, its GID
//	                    and the index of a local GID of the same type.
//	PATH_MTU            at most the smaller active MTU of the two ports.
//	RQ_PSN, SQ_PSN      24 bits; ours to send is the peer's to receive.
//	MAX_QP_RD_ATOMIC    READs and atomics outstanding from here. 0 makes the
//	                    first of them wait for ever on some devices.
//	MAX_DEST_RD_ATOMIC  those that we answer at a time; at least the peer's
//	                    MAX_QP_RD_ATOMIC.
//	TIMEOUT             4.096 us * 2^n without an acknowledgement; 0 is for ever.
//	RETRY_CNT           times to resend after that; 7 is for ever on some devices.
//	RNR_RETRY           times to resend when the peer had no receive; 7 is for
//	                    ever by the specification.
//	MIN_RNR_TIMER       how long we ask a peer to wait then; a code, 1 is 10 us,
//	                    12 is 640 us, 0 is 655 ms.
package ibv
