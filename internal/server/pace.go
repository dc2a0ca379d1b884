package server

import "time"

// A scan keeps a processor for milliseconds, while a put or a get takes microseconds
// and needs a processor at several moments of them. So a tenant who has scans
// waiting beside the one that runs is not given all the time that there is: after
// each slice of a scan (store.ScanRequest.Pause) its worker sleeps for as long as the
// slice took, and others find a processor that is free. A tenant with one scan at a
// time is not slowed down, and the main login never is.

// restMax bounds one rest: a slice that took longer had no processor for a part of it.
const restMax = 2 * time.Millisecond

// pause returns what the scan r calls between its slices; nil: nothing. The slice
// begins now.
func (r *request) pause() func() {
	p, l := r.s.srv.scans, r.s.login
	if l.Name == "" {
		return nil
	}
	begun := time.Now()
	return func() {
		if p.backlog(l) {
			time.Sleep(min(time.Since(begun), restMax))
		}
		begun = time.Now()
	}
}
