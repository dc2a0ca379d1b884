package ibv

import (
	"fmt"
	"sync"
)

// These are the libraries, by the names that programs linked with them ask for.
const (
	libVerbs = "libibverbs.so.1"
	libCM    = "librdmacm.so.1"

	pkgVerbs = "rdma-core ibverbs-providers"
	pkgCM    = "librdmacm1"
)

var (
	loadVerbsOnce = sync.OnceValue(func() error {
		sysPrepare()
		return loadVerbs(libVerbs)
	})
	loadCMOnce = sync.OnceValue(func() error {
		if err := Load(); err != nil {
			return err
		}
		return loadCM(libCM)
	})
)

// Load loads libibverbs. The first call decides: later ones return the same,
// so a library installed meanwhile is found by the next start of the program.
// It fails with a *LoadError, which wraps ErrUnavailable. All calls that need
// the library load it. The first call sets a variable of the environment: see the
// package comment.
func Load() error { return loadVerbsOnce() }

// LoadCM loads librdmacm, after libibverbs; see Load.
func LoadCM() error { return loadCMOnce() }

// loadVerbs and loadCM take the name of the library as an argument so that a test
// can ask for one that is not there.
func loadVerbs(soname string) error { return load(tableVerbs, soname, pkgVerbs) }
func loadCM(soname string) error    { return load(tableCM, soname, pkgCM) }

// load loads a library and looks up the functions of its table.
func load(table int, soname, pkg string) error {
	cause, missing := sysLoad(table, soname)
	if cause == nil {
		return nil
	}
	if !missing {
		pkg = "" // installing will not help: this program is without it
	}
	return &LoadError{Library: soname, Package: pkg, Cause: cause}
}

// A LoadError says that one of rdma-core's libraries could not be loaded. It
// wraps ErrUnavailable and Cause.
type LoadError struct {
	Library string // "libibverbs.so.1"
	Package string // Debian's package that has it; empty if that is not the remedy
	Cause   error  // what the dynamic linker said, or how this program was built
}

func (e *LoadError) Error() string {
	if e.Package == "" {
		return fmt.Sprintf("ibv: %s cannot be used: %v", e.Library, e.Cause)
	}
	return fmt.Sprintf("ibv: %s cannot be loaded: %v: install rdma-core (Debian: apt-get install %s)", e.Library, e.Cause, e.Package)
}

// Unwrap lets errors.Is find ErrUnavailable and the cause.
func (e *LoadError) Unwrap() []error { return []error{ErrUnavailable, e.Cause} }

// Tables of the shim, RK_TABLE_*.
const (
	tableVerbs = 0
	tableCM    = 1
)
