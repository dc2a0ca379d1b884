package server

import (
	"fmt"

	"github.com/rdmakv/rdmakv/internal/server/base"
	"github.com/rdmakv/rdmakv/internal/server/session"
	"github.com/rdmakv/rdmakv/internal/server/work"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// workers run the requests that may wait.
type workers struct{ *work.Pool }

// pools are the workers of a node, or of a space.
type pools struct {
	pool     *workers // gets, and writes that ask the disk
	scans    *workers // what takes long by nature, so that gets do not queue behind it
	clusters *workers // of the node alone, as is the next: no scan can fill them
	admins   *workers
}

// pooled is a request as a pool sees it.
type pooled op

func (j *pooled) Drop()          { (*op)(j).Drop() }
func (j *pooled) Again() bool    { return j.poll.begun }
func (j *pooled) AddGrant(n int) { (*op)(j).Request.AddGrant(n) }

// Run handles the request where it may wait for the disk.
func (j *pooled) Run() {
	if j.asks {
		(*op)(j).ask()
		return
	}
	j.row.run((*op)(j))
}

func (j *pooled) Refuse() {
	r, l := (*op)(j), j.Session.Login
	r.Withhold()
	r.Overloaded(base.BoundLoginQueue, fmt.Sprintf("tenant %s has %d requests of this kind in the queue", l.Label, l.MaxQueued))
}

// submit queues a request, refuses it if its login has too many in the queue, or drops
// it if its session or the pool has ended.
func (w *workers) submit(r *op) { w.Submit(r.Session.Line(), (*pooled)(r)) }

// take takes the waiting requests of a session out; they are the caller's.
func (w *workers) take(s *session.Session) (mine []*op) {
	for _, j := range w.Take(s.Line()) {
		mine = append(mine, (*op)(j.(*pooled)))
	}
	return mine
}

// refuseScans answers what waits for the workers that scan: the server is closing,
// and a queue of scans may take longer than it has.
func (srv *Server) refuseScans() {
	for _, s := range srv.sessionList() {
		for _, r := range srv.scans.take(s) {
			r.Fail(wire.StatusClosing, "")
		}
		s.Flush()
	}
}

// openPools starts the workers of the node, or of a space. The main login is the
// operator's, or everybody's on a node without tenants: it may use all processors, and all
// workers of the gets. The others may not.
func (srv *Server) openPools() {
	n := srv.cfg.Workers
	srv.pool = &workers{work.New(work.Gets, n, n, max(1, n-n/4))}
	// Scans take the time of processors more than that of disks. So that puts and
	// gets of others have some, one tenant scans on half of the processors at most.
	n = max(2, n/4)
	srv.scans = &workers{work.New(work.Scans, n, max(1, n/2), max(1, n/4))}
	if srv.root == srv {
		srv.clusters = &workers{work.New(work.Cluster, clusterWorkers, clusterWorkers, clusterWorkers-1)}
		srv.admins = &workers{work.New(work.Admin, adminWorkers, adminWorkers-1, adminWorkers/2)}
	}
}

// closePools ends the workers.
func (srv *Server) closePools() {
	for _, w := range [...]*workers{srv.pool, srv.scans, srv.clusters, srv.admins} {
		if w != nil {
			w.Close()
		}
	}
}

const (
	clusterWorkers = 2 // what they answer lies ready
	adminWorkers   = 4 // a revocation may wait for sessions, a promise for the disk
)
