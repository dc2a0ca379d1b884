package wire

import "fmt"

// An AdminOp is something that the operator of a node asks of it. The numbers
// are part of the protocol and are never given a second meaning.
type AdminOp uint8

const (
	AdminRotate     AdminOp = 1 // rkeys: "" or "start" begins a rotation, "status" asks how far it is
	AdminRevoke     AdminOp = 2 // a tenant, by name: its sessions end, new ones are refused
	AdminAllow      AdminOp = 3 // takes that back
	AdminStatus     AdminOp = 4 // the node
	AdminGossipKeys AdminOp = 5 // list, add, use, remove
	AdminLimits     AdminOp = 6 // what is in force
	AdminTenants    AdminOp = 7 // list
	adminOps                = 8
)

// MaxAdminOps bounds the numbers of operations, for tables.
const MaxAdminOps = int(adminOps)

var adminNames = [adminOps]string{
	AdminRotate: "rotate-rkeys", AdminRevoke: "revoke", AdminAllow: "allow", AdminStatus: "status",
	AdminGossipKeys: "gossip-keys", AdminLimits: "limits", AdminTenants: "tenants",
}

func (op AdminOp) String() string {
	if int(op) < len(adminNames) && adminNames[op] != "" {
		return adminNames[op]
	}
	return fmt.Sprintf("AdminOp(%d)", uint8(op))
}

// An Admin asks for an operation, at offset 0, or for a further part of the
// answer to the last one that this session has asked for. Needs the admin
// right.
//
//	┌op┬ 0 ┬name length┬offset┬name┐
//	└1 ┴1  ┴2          ┴4     ┴…   ┘
type Admin struct {
	Op     AdminOp
	Offset uint32
	Name   []byte // whose or what, as Op says
}

// Changes says whether the operation changes something, so that whoever hears no
// answer does not know whether it was done.
func (m Admin) Changes() bool {
	switch m.Op {
	case AdminRevoke, AdminAllow:
		return true
	case AdminRotate:
		return string(m.Name) != "status"
	case AdminGossipKeys:
		return string(m.Name) != "list"
	}
	return false
}

// MaxAdminName bounds the name, in bytes.
const MaxAdminName = 1024

// AppendAdmin appends an Admin.
func AppendAdmin(dst []byte, id uint64, m Admin) []byte {
	start := len(dst)
	dst = begin(dst, TypeAdmin, id)
	dst = append(dst, byte(m.Op), 0)
	dst = le.AppendUint16(dst, len16(m.Name))
	dst = le.AppendUint32(dst, m.Offset)
	return finish(append(dst, m.Name...), start)
}

// ParseAdmin reads the body of an Admin. Whether the operation exists is for
// the server to say.
func ParseAdmin(body []byte) (Admin, error) {
	f := fields{b: body}
	m := Admin{Op: AdminOp(f.u8())}
	f.zero(1)
	n := f.u16()
	m.Offset = f.u32()
	if n > MaxAdminName {
		f.fail(ErrRange)
	}
	m.Name = f.take(uint64(n))
	if err := f.done(); err != nil {
		return Admin{}, err
	}
	return m, nil
}

// An AdminReply is a part of the answer, a JSON text.
//
//	┌total┬offset┬text┐
//	└4    ┴4     ┴…   ┘
type AdminReply struct {
	Total, Offset uint32 // bytes of the whole text; where this part begins
	Data          []byte
}

// AdminFixed is what an AdminReply takes besides its text, with the header.
const AdminFixed = HeaderSize + 8

// AppendAdminReply appends the reply to an Admin.
func AppendAdminReply(dst []byte, id uint64, m AdminReply) []byte {
	start := len(dst)
	dst = begin(dst, TypeAdmin.Reply(), id)
	dst = le.AppendUint32(dst, m.Total)
	dst = le.AppendUint32(dst, m.Offset)
	return finish(append(dst, m.Data...), start)
}

// ParseAdminReply reads the body of the reply to an Admin.
func ParseAdminReply(body []byte) (AdminReply, error) {
	f := fields{b: body}
	m := AdminReply{Total: f.u32(), Offset: f.u32()}
	if f.err == nil {
		m.Data = f.rest()
		if uint64(m.Offset)+uint64(len(m.Data)) > uint64(m.Total) {
			f.fail(ErrRange)
		}
	}
	if err := f.done(); err != nil {
		return AdminReply{}, err
	}
	return m, nil
}
