package client

import "context"

// A Path says how a get was answered: what it cost, for who measures.
type Path uint8

// The paths of a get.
const (
	PathUnknown   Path = iota // not answered
	PathOneRead               // one RDMA READ: of the item, where it was known to be
	PathTwoReads              // two: of the bucket, then of the item
	PathMoreReads             // more: something had moved or was being written, or there were several candidates
	PathLarge                 // a value above 64 KiB, READ in chunks
	PathSend                  // a message that the server's CPU answered
)

// String returns the name that reports use: "read_1".
func (p Path) String() string {
	switch p {
	case PathOneRead:
		return "read_1"
	case PathTwoReads:
		return "read_2"
	case PathMoreReads:
		return "read_more"
	case PathLarge:
		return "read_large"
	case PathSend:
		return "send"
	}
	return "unknown"
}

// readPath is the path of a get that took n READs.
func readPath(n uint32) Path {
	switch {
	case n <= 1:
		return PathOneRead
	case n == 2:
		return PathTwoReads
	}
	return PathMoreReads
}

// GetPath is GetInto that also tells how the get was answered. A key that does
// not exist has a path as well, beside ErrNotFound.
func (c *Client) GetPath(ctx context.Context, key, dst []byte) ([]byte, Path, error) {
	w := want{n: -1, dst: dst[:0]}
	if err := c.get(ctx, "get", key, &w); err != nil {
		return nil, w.path, err
	}
	return w.dst, w.path, nil
}
