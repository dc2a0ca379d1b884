package ibv

// ofQP says if events of this type name a QP.
func (t AsyncType) ofQP() bool {
	switch t {
	case AsyncQPFatal, AsyncQPReqErr, AsyncQPAccessErr, AsyncCommEst, AsyncSQDrained,
		AsyncPathMig, AsyncPathMigErr, AsyncQPLastWQEReached:
		return true
	}
	return false
}
