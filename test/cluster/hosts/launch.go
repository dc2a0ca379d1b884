package hosts

import "github.com/rdmakv/rdmakv/test/node"

// A launcher starts processes of this machine through a function of its host.
type launcher struct {
	node.Launcher
	via func(func() error) error
}

func (l *launcher) Start(c node.Command) (p node.Process, err error) {
	err = l.via(func() (err error) {
		p, err = l.Launcher.Start(c)
		return err
	})
	return p, err
}
