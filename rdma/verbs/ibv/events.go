package ibv

// AsyncType is enum ibv_event_type.
type AsyncType uint32

const (
	AsyncCQErr AsyncType = iota
	AsyncQPFatal
	AsyncQPReqErr
	AsyncQPAccessErr
	AsyncCommEst
	AsyncSQDrained
	AsyncPathMig
	AsyncPathMigErr
	AsyncDeviceFatal
	AsyncPortActive
	AsyncPortErr
	AsyncLIDChange
	AsyncPKeyChange
	AsyncSMChange
	AsyncSRQErr
	AsyncSRQLimitReached
	AsyncQPLastWQEReached
	AsyncClientReregister
	AsyncGIDChange
	AsyncWQFatal
)

// An AsyncEvent is struct ibv_async_event, acknowledged and copied.
type AsyncEvent struct {
	Type AsyncType
	QPN  uint32 // of QP events
	QP   *QP    // of QP events; nil if it is gone
	CQ   *CQ    // of CQ events; nil if it is gone
	SRQ  *SRQ   // of SRQ events; nil if it is gone
	Port uint8  // of port events
}

// CMEventType is enum rdma_cm_event_type.
type CMEventType uint32

const (
	CMAddrResolved CMEventType = iota
	CMAddrError
	CMRouteResolved
	CMRouteError
	CMConnectRequest
	CMConnectResponse
	CMConnectError
	CMUnreachable
	CMRejected
	CMEstablished
	CMDisconnected
	CMDeviceRemoval
	CMMulticastJoin
	CMMulticastError
	CMAddrChange
	CMTimewaitExit
)

// A CMEvent is struct rdma_cm_event, copied and acknowledged: nothing of it
// belongs to librdmacm any more.
type CMEvent struct {
	Type     CMEventType
	Status   int       // 0, a negative errno, or the reason of a rejection
	ID       *CMID     // whose event it is; of a CONNECT_REQUEST the new id
	ListenID *CMID     // of a CONNECT_REQUEST
	Param    ConnParam // of CONNECT_REQUEST, CONNECT_RESPONSE, ESTABLISHED, REJECTED
}

// ConnParam is struct rdma_conn_param.
type ConnParam struct {
	PrivateData        []byte // copied on the way in and out
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        bool
	RetryCount         uint8
	RNRRetryCount      uint8
	SRQ                bool
	QPNum              uint32
}
