package store

import (
	"errors"
	"io/fs"
)

// openLedger compares the ledger with what is on the disk and goes on with it.
// What it found is returned for the heartbeat, which only Pebble can show.
func (s *Store) openLedger(created bool) (found ledgerText, err error) {
	c := s.cfg
	if created {
		// Left by a creation that was cut short: its files are gone.
		if err := c.FS.Remove(c.FS.PathJoin(c.Dir, ledgerFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
		s.ledger = newLedger(c, found)
		return found, nil
	}
	found, known, err := compareLedger(c)
	if err != nil {
		return found, err
	}
	s.ledger = newLedger(c, found)
	if !known {
		c.Logger.Warn("there is no ledger: damage to manifest and log may go unnoticed", "file", ledgerFile)
		// The first manifest that is written begins one. Until Pebble calls that
		// one the manifest in force, it is this, of which nothing is known.
		return found, s.ledger.admit()
	}
	// Before Pebble changes a file that a ledger of all files has.
	return found, s.ledger.write()
}
