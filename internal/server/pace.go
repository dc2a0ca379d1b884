package server

import "time"

// A scan keeps a processor for milliseconds, while a put or a get takes microseconds
// and needs a processor at several moments of them. So a tenant who has scans
// waiting beside the one that runs is not given all the time that there is: after
// each slice of a scan (store.ScanRequest.Pause) its worker sleeps for as long as the
// slice took, times the number of the scans that wait, ten at most, and others find a
// processor that is free. A tenant with one scan at a time is not slowed down, one
// with two gets half of the time of a worker, one who floods gets an eleventh of it.
// While requests of others wait for the same workers a rest is as long as the slice,
// whatever waits. The main login is never slowed down.

const (
	// restTimes bounds how much longer than a slice its rest is.
	restTimes = 10
	// restMax bounds one rest: a slice that took very long had no processor for a
	// part of it.
	restMax = 20 * time.Millisecond
)

// pause returns what the scan r calls between its slices; nil: nothing. The slice
// begins now.
func (r *request) pause() func() {
	p, l := r.s.srv.scans, r.s.login
	if l.Name == "" {
		return nil
	}
	begun := time.Now()
	return func() {
		time.Sleep(rest(time.Since(begun), p, l))
		begun = time.Now()
	}
}

// rest returns for how long a worker sleeps after a slice of a scan of l.
func rest(slice time.Duration, p *pool, l *login) time.Duration {
	mine, others := p.backlog(l)
	times := min(mine, restTimes)
	if others > 0 {
		times = min(mine, 1)
	}
	return min(slice*time.Duration(times), restMax)
}
