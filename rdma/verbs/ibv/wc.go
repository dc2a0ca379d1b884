package ibv

// A WC is struct ibv_wc, of which it has the layout: polling fills it in place.
// Fields that only UD uses have no name here, and some of their place holds the
// time of the poll. Of a WC whose Status is not StatusSuccess only ID, Status,
// VendorErr and QPN count (ibv_poll_cq(3)).
type WC struct {
	ID        uint64
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32
	ImmInv    uint32 // immediate data (network order), or the rkey that was invalidated
	QPN       uint32
	_         uint32 // src_qp
	Flags     uint32 // WCFlag*
	Polled    int64  // CLOCK_BOOTTIME in nanoseconds just after the poll; 0 where there is none
}

// WCStatus is enum ibv_wc_status.
type WCStatus uint32

const (
	StatusSuccess          WCStatus = iota
	StatusLocLenErr                 // local length error
	StatusLocQPOpErr                // the QP does not allow this operation
	StatusLocEECOpErr               // (RD only)
	StatusLocProtErr                // local buffer not covered by its lkey
	StatusWRFlushErr                // the QP was in ERR before this was done
	StatusMWBindErr                 // memory window not bound
	StatusBadRespErr                // the peer's answer made no sense
	StatusLocAccessErr              // local buffer may not be written
	StatusRemInvReqErr              // the peer's QP does not allow this operation
	StatusRemAccessErr              // the peer's memory does not allow it: bad rkey, bounds
	StatusRemOpErr                  // the peer could not do it
	StatusRetryExcErr               // no answer after retry_cnt tries
	StatusRNRRetryExcErr            // no receive posted after rnr_retry tries
	StatusLocRDDViolErr             // (RD only)
	StatusRemInvRDReqErr            // (RD only)
	StatusRemAbortErr               // the peer aborted the operation
	StatusInvEECNErr                // (RD only)
	StatusInvEECStateErr            // (RD only)
	StatusFatalErr                  // the device failed
	StatusRespTimeoutErr            // no answer in time
	StatusGeneralErr                // any other error
	StatusTMErr                     // (tag matching)
	StatusTMRndvIncomplete          // (tag matching)
)

// WCOpcode is enum ibv_wc_opcode. Those of receives have the bit WCRecv.
type WCOpcode uint32

const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLocalInv        WCOpcode = 6
	WCRecv            WCOpcode = 1 << 7
	WCRecvRDMAWithImm WCOpcode = 1<<7 + 1
)

// Flags of completions, enum ibv_wc_flags.
const (
	WCFlagGRH     = 1 << 0
	WCFlagWithImm = 1 << 1
	WCFlagWithInv = 1 << 3
)
