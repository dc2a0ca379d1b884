package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A Target is where backups stand. Names are those of the package comment: of slashes, digits, letters and signs, never of dots alone. It is safe for concurrent use, and calls obey their contexts.
type Target interface {
	// Size says how many bytes an object has; ErrNoObject: it is not there.
	Size(ctx context.Context, name string) (int64, error)
	// Same compares an object with the bytes that it is to have. there: it is there, with whatever bytes. A directory reads them. A bucket goes by the checksum
	// that the server has of them, and reads them where it has none that fits.
	Same(ctx context.Context, name string, data []byte) (there, same bool, err error)
	// Put writes an object whole: nobody sees a part of it, whenever the program ends. What was there under the name is replaced.
	Put(ctx context.Context, name string, data []byte) error
	// Get reads an object of at most so many bytes, which are the caller's. ErrNoObject, ErrTooLarge.
	Get(ctx context.Context, name string, most int64) ([]byte, error)
	// List returns the names of objects that begin so, in order, at most so many.
	List(ctx context.Context, prefix string, most int) ([]string, error)
	// String names the target for people. It has no secret.
	String() string
}

var (
	// ErrNoObject: the target has no object of that name.
	ErrNoObject = errors.New("backup: it is not there")
	// ErrTooLarge: the object is larger than any that this package writes.
	ErrTooLarge = errors.New("backup: larger than what a backup writes")
	// ErrTarget: this is no place for backups, or for those of this cluster.
	ErrTarget = errors.New("backup: no place for this backup")
	// ErrNoBackup: there is no such backup.
	ErrNoBackup = errors.New("backup: there is no such backup")
)

// A Mark says whose backups a target has, as JSON in the object MarkName.
type Mark struct {
	Format    string `json:"format"`
	Version   int    `json:"version"`
	ClusterID string `json:"cluster_id"`
}

const (
	// MarkName is the object that is written first.
	MarkName   = "rdmakv-backups"
	markFormat = "rdmakv cluster backups"
	manifests  = "backups/"
	// mostBackups is how many backups of a target are looked at.
	mostBackups = 100_000
)

// Claim makes a target one of backups of a cluster. With dry nothing is written. A target that has anything, and no mark, is refused: what it has is somebody else's.
//
// Errors: ErrTarget, ErrVersion, those of the target.
func Claim(ctx context.Context, t Target, clusterID string, dry bool) error {
	mark, err := MarkOf(ctx, t)
	switch {
	case err == nil && mark.ClusterID == clusterID:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s has backups of the cluster %s, and this one is %s: take another place", ErrTarget, t, mark.ClusterID, clusterID)
	case !errors.Is(err, ErrNoObject):
		return err
	}
	if names, err := t.List(ctx, "", 1); err != nil {
		return err
	} else if len(names) > 0 {
		return fmt.Errorf("%w: %s is not empty, and has no backups (%.60q is there): take an empty place", ErrTarget, t, names[0])
	}
	if dry {
		return nil
	}
	text, err := json.Marshal(&Mark{Format: markFormat, Version: Version, ClusterID: clusterID})
	if err != nil {
		return err
	}
	return t.Put(ctx, MarkName, append(text, '\n'))
}

// MarkOf reads the mark of a target. ErrNoObject: it has none. ErrTarget, ErrVersion, those of the target.
func MarkOf(ctx context.Context, t Target) (m Mark, err error) {
	text, err := t.Get(ctx, MarkName, 4096)
	if err != nil {
		return m, err
	}
	if json.Unmarshal(text, &m) != nil || m.Format != markFormat {
		return m, fmt.Errorf("%w: %s has a damaged %s", ErrTarget, t, MarkName)
	}
	if m.Version != Version {
		return m, fmt.Errorf("%w: %s: version %d, and this program knows %d", ErrVersion, t, m.Version, Version)
	}
	return m, nil
}

// possibleID is what names a backup: the time of its beginning, in UTC.
var possibleID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z$`)

// List returns the ids of the backups of a target, oldest first. ErrTarget: it is no place of backups.
func List(ctx context.Context, t Target) (ids []string, err error) {
	if _, err := MarkOf(ctx, t); errors.Is(err, ErrNoObject) {
		return nil, fmt.Errorf("%w: %s has no backups", ErrTarget, t)
	} else if err != nil {
		return nil, err
	}
	names, err := t.List(ctx, manifests, mostBackups)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if id := strings.TrimPrefix(name, manifests); possibleID.MatchString(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Load reads the manifest of a backup; "": the newest. ErrNoBackup, ErrTarget, ErrManifest, ErrVersion, those of the target.
func Load(ctx context.Context, t Target, id string) (*Manifest, string, error) {
	ids, err := List(ctx, t)
	switch {
	case err != nil:
		return nil, "", err
	case len(ids) == 0:
		return nil, "", fmt.Errorf("%w: %s has none that is complete", ErrNoBackup, t)
	case id == "":
		id = ids[len(ids)-1]
	case !slices.Contains(ids, id):
		return nil, "", fmt.Errorf("%w: %s has no backup %.40q: see cluster backups list", ErrNoBackup, t, id)
	}
	text, err := t.Get(ctx, manifests+id, MaxManifest)
	if err != nil {
		return nil, id, err
	}
	m, err := Parse(text)
	if err != nil {
		return nil, id, fmt.Errorf("%w (backup %s of %s)", err, id, t)
	}
	return m, id, nil
}

// Seal writes the manifest of a backup with an id, which makes a backup of its pieces: they are all there. The target must be the cluster's still: if two
// clusters took an empty one at the same moment, one of them is refused here.
//
// Errors: ErrManifest, ErrTarget, those of the target.
func Seal(ctx context.Context, t Target, m *Manifest, id string) error {
	text, err := m.Encode()
	if err != nil {
		return err
	}
	switch mark, err := MarkOf(ctx, t); {
	case errors.Is(err, ErrNoObject):
		return fmt.Errorf("%w: %s has lost its %s while the backup was made", ErrTarget, t, MarkName)
	case err != nil:
		return err
	case mark.ClusterID != m.ClusterID:
		return fmt.Errorf("%w: %s has become the place of the cluster %s: take another place", ErrTarget, t, mark.ClusterID)
	}
	if _, err := t.Size(ctx, manifests+id); err == nil {
		return fmt.Errorf("%w: %s has a backup %s already", ErrTarget, t, id)
	} else if !errors.Is(err, ErrNoObject) {
		return err
	}
	return t.Put(ctx, manifests+id, text)
}

// A Kept says what became of a piece that a target is to have.
type Kept int

const (
	Reused Kept = iota // it was there, and is not written
	Added              // it was not there
	Mended             // it was there with other bytes, so what stood under its name was damaged, and is replaced
)

// Keep sees to it that a target has a piece. A piece that is there already is compared (Target.Same): else one that was damaged would be part of
// every backup from then on. With dry nothing is written, and what would have been is told.
func Keep(ctx context.Context, t Target, p *Piece, dry bool) (Kept, error) {
	there, same, err := t.Same(ctx, p.Sum.Name(), p.Bytes)
	kept := Added
	switch {
	case err != nil || same:
		return Reused, err
	case there:
		kept = Mended
	}
	if dry {
		return kept, nil
	}
	return kept, t.Put(ctx, p.Sum.Name(), p.Bytes)
}

// Read reads a piece and yields its records (Records). An error names the piece: ErrPiece, those of the target, yield's.
func Read(ctx context.Context, t Target, e *Entry, yield func(Record) error) error {
	b, err := t.Get(ctx, e.Sum().Name(), e.Bytes)
	if errors.Is(err, ErrNoObject) || errors.Is(err, ErrTooLarge) {
		return fmt.Errorf("%w: %s of shard %d: %w", ErrPiece, e.Piece, e.Shard, err)
	}
	if err != nil {
		return err
	}
	first := true
	return Records(b, e.Sum(), e.Keys, func(r Record) error {
		if first && string(r.Key[:min(len(r.Key), MaxFirst)]) != string(e.First) {
			return fmt.Errorf("%w: %s of shard %d: it begins with another key than the manifest says", ErrPiece, e.Piece, e.Shard)
		}
		first = false
		return yield(r)
	})
}

// ID is the id of a backup that began then, in milliseconds since 1970.
func ID(began int64) string { return timeOf(began).Format("20060102T150405.000Z") }
