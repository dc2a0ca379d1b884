package store

// Lag says how far what readers see is behind what was ordered, at one moment
// for each shard. All zero in a store at rest.
type Lag struct {
	Unpublished  int // writes that are ordered and not published, by key
	NotDurable   int // shards with ordered > durable
	NotPublished int // shards with durable > published
}

// Lag looks at the marks of all shards.
func (s *Store) Lag() (l Lag) {
	for _, sh := range s.shards {
		sh.mu.Lock()
		l.Unpublished += len(sh.overlay)
		if sh.ordered > sh.durable {
			l.NotDurable++
		}
		if sh.durable > sh.published {
			l.NotPublished++
		}
		sh.mu.Unlock()
	}
	return l
}
