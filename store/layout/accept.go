package layout

// Accept is the rule for an item that was READ from place p, where a key is
// remembered to be, as Lookup applies it: live, the checksum holds, the key is
// equal. If it is true the view shows the item over b; otherwise it is no item, and
// a get goes on with a Lookup. It does not allocate.
func (v *ItemView) Accept(b []byte, inc uint64, p Place, key []byte) bool {
	return len(b) >= ItemHeaderSize && stateOf(b) == Live &&
		v.parse(b, inc, p, allSumBits) == nil && sameKey(v.Key(), key)
}
