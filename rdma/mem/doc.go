// Package mem hands out memory that may be registered with an RDMA device, and has the copies
// that are safe on memory which others are writing.
//
// # Why not the Go heap
//
// A NIC reads registered memory at any time and does not ask the Go runtime. So that memory must
// neither move, nor be collected, nor go to another owner while a registration lives, and the Go
// heap promises none of that to a device. Alloc maps pages of its own, and tells the kernel two
// things about them:
//
//   - MADV_DONTFORK: a child process does not inherit them. If it did, fork would mark
//     them copy-on-write, and the parent's next store would land in a fresh page that
//     the NIC does not know.
//   - MADV_DONTDUMP: core dumps leave them out. Slabs are large and hold users' data.
//
// # What can be asked for
//
// Options has the size of the pages (normal, reserved huge pages, transparent ones), the NUMA
// node that they come from, whether they are taken from the machine at once (Prefault), and
// whether other processes can be let read them (Shared). Kind Heap takes the bytes from the Go
// heap all the same. It is for tests: the race detector watches Go memory alone, so a fabric is
// tested with Heap, where races are seen, and with Mmap, which is what programs use. On systems
// other than Linux there are neither Huge nor Shared, and the memory is Go's: the fabrics there
// are software in this process.
//
// Each block has a tag that says what it is for, and a Ledger counts bytes and blocks by tag,
// and can bound their sum.
//
// # Order
//
// The order of calls is Alloc, PD.RegMR, MR.Close, Block.Free. Free does not know of
// registrations: if one is left, the device goes on reading pages that may belong to another
// owner by then.
//
// # Reading what others write
//
// A responder in software copies out of a region while its owner stores into it. Words are the
// unit of that agreement: the owner stores whole aligned words of 8 bytes, and LoadWords and
// Copy load each such word once, so that no word is half old and half new. Across words nothing
// is promised; a reader must find out from the content whether the words belong together.
package mem
