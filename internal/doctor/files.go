package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// keyFiles examines the files of secrets: each must be there, be a plain file,
// be readable by its owner alone, and have the right form. It never shows their
// content.
func (e *exam) keyFiles() {
	for _, f := range e.set.Files {
		st, err := os.Stat(f.Path)
		create := ""
		if f.Secret && f.Key != "tls.key" {
			create = fmt.Sprintf("for a new one: (umask 077; head -c 32 /dev/urandom | base64 >%s), the same on every node; ", f.Path)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e.bad(Fail, f.Key, f.Path, CodeKeyFile, create+"or correct the path", "it does not exist")
		case err != nil:
			e.bad(Fail, f.Key, f.Path, CodeKeyFile, "the user who runs the program must be able to reach and read it", "%v", err)
		case !st.Mode().IsRegular():
			e.bad(Fail, f.Key, f.Path, CodeKeyFile, "name a file", "it is no regular file")
		case f.Secret && st.Mode().Perm()&0o077 != 0:
			e.bad(Fail, f.Key, f.Path, CodeKeyMode, "chmod 600 "+f.Path+", owned by the user who runs the program; and think whether it has been read already",
				"its mode is %04o: others may read or change it", st.Mode().Perm())
		case unix.Faccessat(unix.AT_FDCWD, f.Path, unix.R_OK, unix.AT_EACCESS) != nil:
			e.bad(Fail, f.Key, f.Path, CodeKeyFile, "chown it to the user who runs the program (and examine as that user)", "this user may not read it; its mode is %04o", st.Mode().Perm())
		case f.Err != nil:
			e.bad(Fail, f.Key, f.Path, CodeKeyFile, "correct what stands in it", "%v", f.Err)
		default:
			e.ok(f.Key, f.Path, "there, mode %04o, of the right form", st.Mode().Perm())
		}
	}
	for _, whose := range e.set.WeakSecrets {
		e.bad(Warn, "secret", whose, CodeWeakSecret, "make a random one on every machine that has it: (umask 077; head -c 32 /dev/urandom | base64 >FILE)",
			"it looks like words or has too few different characters: who has seen one connection request can try out guesses on a machine of his own, a billion a second")
	}
}

// ways says which fabrics are used for each address, and finds those that are
// served by none.
func (e *exam) ways() {
	for _, w := range e.set.Ways {
		name := "fabric to"
		if w.Listen {
			if !e.set.Node {
				continue
			}
			name = "fabric at"
		}
		not := ""
		for _, why := range w.Not {
			not += "; not " + why
		}
		switch {
		case len(w.Use) == 0:
			do := "listen at an address of the device's interface (kvclient fabric devices), or fabric: auto"
			if !w.Listen {
				do = "dial an address that the device reaches, or fabric: auto"
			}
			e.bad(Fail, name, w.Address, CodeNotUsed, do, "none that the configuration allows%s", not)
		default:
			text := ""
			for i, use := range w.Use {
				if i > 0 {
					text += "; "
				}
				text += use
			}
			e.ok(name, w.Address, "%s%s", text, not)
		}
	}
}
