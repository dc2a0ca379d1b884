package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/rdmakv/rdmakv/client"
)

// A file goes into registered memory and from there to the server, without a copy
// on the way; and back.
func ExampleBuffer() {
	c, done := open()
	defer done()
	ctx, key := context.Background(), []byte("file")
	file := strings.NewReader(strings.Repeat("0123456789abcdef", 10_000))

	buf, err := c.NewBuffer(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	defer buf.Free()
	n, err := io.ReadFull(file, buf.Bytes())
	if err != nil && err != io.ErrUnexpectedEOF {
		log.Fatal(err)
	}
	if _, err := buf.Put(ctx, key, n, client.PutOptions{}); err != nil {
		log.Fatal(err)
	}
	value, err := buf.Get(ctx, key) // a part of buf.Bytes()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(value), string(value[:16]))
	// Output: 160000 0123456789abcdef
}
