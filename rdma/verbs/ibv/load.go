package ibv

import "sync"

// The libraries, by the names that programs linked with them ask for.
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

// loadVerbs and loadCM take the name of the library as an argument so that a
// test can ask for one that is not there.
func loadVerbs(soname string) error { return load(tableVerbs, soname, pkgVerbs) }
func loadCM(soname string) error    { return load(tableCM, soname, pkgCM) }

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

// Tables of the shim, RK_TABLE_*.
const (
	tableVerbs = 0
	tableCM    = 1
)
