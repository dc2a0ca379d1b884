package machine

// FilePlan shares out the descriptors of a node, so that no number of connections
// leaves the store without one: a store that cannot make a file ends its node.
type FilePlan struct {
	Limit      int // of open files
	Store      int // files that the store of the node keeps open
	SpaceStore int // that the store of a space does
	Pending    int // connections of one fabric that have not sent their request
	Sessions   int // connections beyond that, those being set up included
}

// What a node opens beside the files that stores keep and connections of clients,
// and what it has at least and at most of those.
const (
	fileReserve   = 256 // listeners, admin port, regions as memfds, devices, files being written
	gossipReserve = 256 // streams of gossip
	spaceReserve  = 32  // of each space, beside the files of its store

	minStoreFiles, maxStoreFiles, maxSpaceFiles = 64, 4096, 256
	minPending, maxPending                      = 16, 1024
	minSessions                                 = 64
)

// PendingConns is how many connections that have not sent their request one fabric may
// keep under a limit of open files.
func PendingConns(limit int) int { return min(maxPending, max(minPending, limit/16)) }

// PlanFiles makes the plan for a limit. false: the limit is too low, and need is one
// that will do.
func PlanFiles(limit int, gossip bool, spaces int) (p FilePlan, need int, ok bool) {
	for need = limit; ; need = need&^63 + 64 {
		if p, ok = planFiles(need, gossip, spaces); ok {
			return p, need, need == limit
		}
	}
}

func planFiles(limit int, gossip bool, spaces int) (FilePlan, bool) {
	left := limit - fileReserve - spaces*spaceReserve
	if gossip {
		left -= gossipReserve
	}
	p := FilePlan{Limit: limit, Pending: PendingConns(limit)}
	p.Store = min(maxStoreFiles, max(minStoreFiles, left/4))
	p.SpaceStore = min(maxSpaceFiles, max(minStoreFiles, left/4/max(1, spaces)))
	// Two fabrics have pending connections, and as many may be on their way out.
	p.Sessions = left - p.Store - spaces*p.SpaceStore - 3*p.Pending
	return p, p.Sessions >= minSessions
}
