package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rdmakv/rdmakv/rdma"
	"github.com/rdmakv/rdmakv/rdma/verbs"
)

// A program that uses the RDMA device by which a server is reached, and says so if
// there is none: rdma-core is missing, the machine has no device, or none of them
// has an address in a network that leads there.
func Example() {
	ctx := context.Background()
	fabric := verbs.New(verbs.Options{})
	dev, route, err := rdma.OpenFor(ctx, fabric, "10.77.0.1:7410")
	if errors.Is(err, rdma.ErrNoDevice) {
		fmt.Println("not by RDMA:", err) // package iwarp needs no device
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	fmt.Printf("%s, because %s\n", dev.Name(), route.Reason)

	// Devices differ: what a program relies on is asked, not assumed.
	attr := dev.Attr()
	fmt.Printf("%d READs of one connection in flight, rights can be revoked: %v\n",
		attr.MaxQPInitRdAtom, !attr.Caps.Has(rdma.CapNoRevoke))

	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	defer pd.Close()
	// From here on everything is as in the example of package rdma, with
	// route.Addr for Connect.
}
