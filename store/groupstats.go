package store

import "github.com/rdmakv/rdmakv/store/internal/replica"

// GroupStats is what the replicas of a store have done since it was opened, in numbers: sums over its groups.
//
// How they stand now the engine tells (EngineOf), which knows what others have.
type GroupStats struct {
	// Elected is how often a replica of this store was elected to lead its group, and Terms how often one has heard of a later term, which an
	// election makes, whoever wins it.
	Elected uint64 `json:"elected"`
	Terms   uint64 `json:"terms"`
	// Entries are those of writes that replicas of this store have proposed as leaders, and EntryBytes theirs.
	Entries    uint64 `json:"entries"`
	EntryBytes uint64 `json:"entry_bytes"`
	// Sent counts snapshots that replicas elsewhere were begun to be sent, because the log has no entries for them any more; Received those that took the
	// place of what a replica here had.
	Sent     uint64 `json:"snapshots_sent"`
	Received uint64 `json:"snapshots_received"`
	// Checks are those that came to a digest, and ChecksFailed those that did not.
	Checks       uint64 `json:"checks"`
	ChecksFailed uint64 `json:"checks_failed"`
}

// GroupStatsOf reads the numbers, each at its own moment; all are 0 in a store without replicas. It waits for nothing, and is safe for
// concurrent use.
func GroupStatsOf(s *Store) GroupStats {
	g := s.groups
	st := GroupStats{Sent: g.sent.Load(), Received: g.received.Load()}
	for _, m := range g.list() {
		c := replica.CountsOf(m.Replica)
		st.Elected, st.Terms = st.Elected+c.Elected, st.Terms+c.Terms
		st.Entries, st.EntryBytes = st.Entries+c.Entries, st.EntryBytes+c.Bytes
		st.Checks, st.ChecksFailed = st.Checks+c.Checks, st.ChecksFailed+c.Failed
	}
	return st
}

// list is the replicas that are there now. It waits for none that is being added, which may take long.
func (g *groupSide) list() (list []*member) {
	seen := make(map[*member]bool)
	for i := range g.of {
		if m := g.of[i].Load(); m != nil && !seen[m] {
			seen[m] = true
			list = append(list, m)
		}
	}
	return list
}
