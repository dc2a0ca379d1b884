package servers

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// nodes are all nodes of a cluster, this one first; or this server alone.
func (s *Server) nodes() []*Server { return append([]*Server{s}, s.Others...) }

// PIDs are the processes of all nodes, this one's first.
func (s *Server) PIDs() (list []int) {
	for _, one := range s.nodes() {
		list = append(list, one.PID())
	}
	return list
}

// OtherTCP is where the other nodes listen; nil: there are none.
func (s *Server) OtherTCP() (list []string) {
	for _, one := range s.Others {
		list = append(list, one.TCP)
	}
	return list
}

// together starts the nodes of a cluster, all at a time, because some are ready only when others
// are, and makes one Server of them. If one does not start, none is left.
func together(n int, start func(i int) (*Server, error)) (*Server, error) {
	list, errs := make([]*Server, n), make([]error, n)
	var starts sync.WaitGroup
	for i := range n {
		starts.Go(func() { list[i], errs[i] = start(i) })
	}
	starts.Wait()
	if err := errors.Join(errs...); err != nil {
		for i, s := range list {
			if errs[i] == nil {
				err = errors.Join(err, s.Stop())
			}
		}
		return nil, err
	}
	list[0].Others = list[1:]
	return list[0], nil
}

// freePorts returns n ports of the loopback interface without a listener, no two alike.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // behind the last one, so that none comes twice
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

// nodeName is the name of a node of a cluster: n1, n2 and so on.
func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }
