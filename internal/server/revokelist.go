package server

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store"
)

// The list of revoked tenants on disk: a line that says what it is, a name on
// each line, a checksum. It is replaced as a whole, so that a crash leaves the
// old one or the new one. One that cannot be read keeps the node from starting:
// to forget who was revoked would let them in.
//
//	rdmakv revoked 1
//	payroll
//	crc32c 1a2b3c4d
const (
	revokedFile  = "REVOKED"
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
		if !validSpaceName(name) {
			return nil, fmt.Errorf("has %q, which is no name of a tenant", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// revokedPath is where the list is; "" on a node that keeps nothing.
func (srv *Server) revokedPath() (vfs.FS, string) {
	if srv.cfg.Mode == store.Cache {
		return nil, ""
	}
	fs := srv.cfg.FS
	if fs == nil {
		fs = vfs.Default
	}
	return fs, joinPath(srv.cfg.FS, srv.cfg.DataDir, revokedFile)
}

// loadRevoked reads the list when the node starts, after the store has made its
// directory.
func (srv *Server) loadRevoked() error {
	fs, path := srv.revokedPath()
	if path == "" {
		return nil
	}
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
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
		return fmt.Errorf("server: %s: %w; without it nobody knows who was revoked: mend it, or remove it to let all tenants in", path, err)
	}
	ls := &srv.logins
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, n := range names {
		ls.revoked[n] = true
		if l := ls.byID[wire.TenantOf(n)]; l != nil {
			l.gone.Store(true)
		}
	}
	if len(names) > 0 {
		srv.log.Warn(limitNone, "some tenants are revoked", "tenants", names)
	}
	return nil
}

// saveRevoked makes the list durable. It reports false where nothing is.
func (srv *Server) saveRevoked(names []string) (durable bool, err error) {
	fs, path := srv.revokedPath()
	if path == "" {
		return false, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("server: the list of revoked tenants cannot be written, nothing is changed: %w", err)
		}
	}()
	tmp := path + ".new"
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return false, err
	}
	_, err = f.Write(encodeRevoked(names))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	if err = fs.Rename(tmp, path); err != nil {
		return false, err
	}
	dir, err := fs.OpenDir(srv.cfg.DataDir)
	if err != nil {
		return false, err
	}
	return true, errors.Join(dir.Sync(), dir.Close())
}
