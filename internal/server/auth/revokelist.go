package auth

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/wholefile"
)

// The list of revoked tenants on disk: a line that says what it is, a name on
// each line, a checksum. It is replaced as a whole, so that a crash leaves the
// old one or the new one. One that cannot be read keeps the node from starting,
// because a node that forgets which tenants were revoked would let them in.
//
//	rdmakv revoked 1
//	payroll
//	crc32c 1a2b3c4d
const (
	// RevokedFile is the name of the list in the directory of a node.
	RevokedFile = "REVOKED"

	revokedTitle = "rdmakv revoked 1\n"
	maxRevoked   = 1 << 20 // bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodeRevoked(names []string) []byte {
	text := revokedTitle
	for _, n := range names {
		text += n + "\n"
	}
	return fmt.Appendf([]byte(text), "crc32c %08x\n", crc32.Checksum([]byte(text), castagnoli))
}

func parseRevoked(data []byte) ([]string, error) {
	text := string(data)
	at := strings.LastIndex(text, "crc32c ")
	if at < 0 || !strings.HasPrefix(text, revokedTitle) {
		return nil, errors.New("is no list of revoked tenants of this version")
	}
	if text[at:] != fmt.Sprintf("crc32c %08x\n", crc32.Checksum([]byte(text[:at]), castagnoli)) {
		return nil, errors.New("is damaged: its checksum is wrong")
	}
	var names []string
	for line := range strings.Lines(text[len(revokedTitle):at]) {
		name := strings.TrimSuffix(line, "\n")
		if !ValidName(name) {
			return nil, fmt.Errorf("has %q, which is no name of a tenant", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// A revokedList is where the list is.
type revokedList struct {
	fs  vfs.FS // nil: the machine's
	dir string // "" on a node that keeps nothing
}

// file returns the file system and the path of the list.
func (l revokedList) file() (fs vfs.FS, path string) {
	if l.fs == nil {
		return vfs.Default, filepath.Join(l.dir, RevokedFile)
	}
	return l.fs, l.fs.PathJoin(l.dir, RevokedFile)
}

// load reads the names. A list that is not there is empty.
func (l revokedList) load() ([]string, error) {
	if l.dir == "" {
		return nil, nil
	}
	fs, path := l.file()
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	if err == nil {
		defer f.Close()
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(f, maxRevoked)); err == nil {
			names, err = parseRevoked(data)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("server: %s: %w; without it nobody knows who was revoked: mend it, or remove it to let all tenants in", path, err)
	}
	return names, nil
}

// save makes the names durable. It reports false where nothing is.
func (l revokedList) save(names []string) (durable bool, err error) {
	if l.dir == "" {
		return false, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("server: the list of revoked tenants cannot be written, nothing is changed: %w", err)
		}
	}()
	fs, path := l.file()
	if err := wholefile.Replace(fs, l.dir, fs.PathBase(path), encodeRevoked(names)); err != nil {
		return false, err
	}
	return true, nil
}
