package doctor

// Codes of findings that are not ok. Scripts rely on them: a code is never
// renamed, and never used for something else.
const (
	CodeConfig        = "config"          // the configuration itself is wrong
	CodeKeyFile       = "key-file"        // a key file is missing, unreadable, malformed
	CodeKeyMode       = "key-mode"        // others may read a key file
	CodeWeakSecret    = "weak-secret"     // a secret can be guessed
	CodeTLS           = "tls"             // certificates that are not believed
	CodeOpenFiles     = "open-files"      // fewer descriptors than sessions
	CodeModule        = "module-missing"  // a kernel module is not loaded
	CodeLibrary       = "library-missing" // a library of rdma-core is not here
	CodeNoDevice      = "no-device"       // the configuration demands RDMA and there is no device
	CodeDeviceName    = "device-name"     // a device was named that does not exist
	CodeDeviceFile    = "device-access"   // /dev/infiniband/… is missing or may not be opened
	CodeDeviceQuery   = "device-query"    // the device does not answer
	CodeRights        = "device-rights"   // peers that are connected and have not logged in may READ
	CodePortDown      = "port-down"       // no port of the device is active
	CodeNoGID         = "no-gid"          // the port has no GID
	CodeGIDIndex      = "gid-index"       // gid_index names an empty entry
	CodeGIDv1         = "gid-roce-v1"     // RoCE v1 passes no router
	CodeGIDLocal      = "gid-link-local"  // a link-local GID passes no router
	CodeMTUMismatch   = "mtu-mismatch"    // device, interface, expert.path_mtu or peer disagree
	CodeMTUSmall      = "mtu-small"       // works, and costs bandwidth
	CodePathMTU       = "path-mtu"        // small packets pass, large ones do not
	CodeNotUsed       = "fabric"          // no fabric serves an address, or a slower one does
	CodeMemlock       = "memlock"         // the limit of locked memory is too low
	CodeMRLimit       = "mr-limit"        // the device registers less than configured
	CodeHugePages     = "huge-pages"      // too few are free
	CodeCgroup        = "cgroup"          // the control group allows less than configured
	CodeClockSource   = "clock-source"    // slow, or without CLOCK_BOOTTIME
	CodeClockUnsynced = "clock-unsynced"  // no program keeps the wall clock right
	CodeClockSkew     = "clock-skew"      // a peer's time differs
	CodeDataDir       = "data-dir"        // cannot be used
	CodeDataOther     = "data-dir-other"  // holds another node's data
	CodeMapPromised   = "map-promised"    // cluster init was cut short
	CodeDataSpace     = "data-space"      // nearly full
	CodeDataSlow      = "data-slow"       // syncs take long, or mean nothing
	CodePortInUse     = "port-in-use"     // another process listens there
	CodePortAddress   = "port-address"    // the address is not this machine's, or not allowed
	CodeName          = "name-unresolved" // a name has no address
	CodeRefused       = "port-closed"     // the peer's machine refuses the connection
	CodeBlocked       = "port-blocked"    // no answer at all: a firewall, or the machine is down
	CodeUnreachable   = "unreachable"     // no route
	CodeGossipKey     = "gossip-key"      // the peer cannot read what our gossip key seals
	CodeGossipLabel   = "gossip-label"    // the peer is of another cluster.name
	CodeGossipAllow   = "gossip-allow"    // the peer does not gossip with this address
	CodeGossipBusy    = "gossip-busy"     // the peer has too many connections
	CodeGossipUDP     = "gossip-udp"      // gossip passes by TCP and not by UDP
	CodeNotOurs       = "not-a-node"      // something else answers there
	CodeSecret        = "secret"          // authentication failed
	CodeVersion       = "version"         // no protocol in common
	CodeNoRDMA        = "no-rdma"         // require_rdma, and only software reaches the peer
	CodeSession       = "session"         // no session, for another reason
	CodeSend          = "send"            // messages are not answered
	CodeRead          = "read"            // one-sided READs fail
	CodeSlower        = "software-fabric" // the session runs in software though there is a device
	CodeUnknown       = "no-address"      // a node of the map that gossip does not know
	CodeSamePeer      = "same-node"       // two addresses lead to one store
	CodeNoLeader      = "group-no-leader" // nobody leads a group of replicas: its keys wait
	CodeNoMajority    = "group-majority"  // fewer replicas of a group are there than it needs
	CodeNoSpare       = "no-spare"        // the loss of one more node stops a group
	CodeReplicaAway   = "replica-away"    // a replica takes no part in its group
	CodeReplicaLags   = "replica-lags"    // a replica lacks many entries, or is being sent all
)
