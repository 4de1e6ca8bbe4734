package event

// A Reason is why a request was refused or a transfer ended early: a word of a closed set, for code that decides by it. Err says the same for
// people, with names and numbers. Empty: no reason of this set.
type Reason string

// The reasons of DHCPRefused and DHCPNak.
const (
	NoReservation Reason = "no_reservation" // and no pool takes the machine
	NoNetwork     Reason = "no_network"     // it asks from a segment, or through a relay, of no network
	OtherNetwork  Reason = "other_network"  // its reservation is in another network than the one that it asks from
	PoolFull      Reason = "pool_full"
	PortLimit     Reason = "port_limit" // the machines behind its port of a relay have as many addresses as per_port allows

	OtherSubnet      Reason = "other_subnet"      // the address is of another network than the one that the machine asks from
	OtherReservation Reason = "other_reservation" // the machine's reservation is another address
	OtherLease       Reason = "other_lease"       // the machine has a lease of another address of the pool
	AddressNotFree   Reason = "address_not_free"  // the address is leased to another machine, or in no pool of this one
	NotOffered       Reason = "not_offered"       // the machine has no lease, and requests an address that it was not offered
)

// The reasons of FileMissing, TFTPRefused and, of the first and of those that forbid, ConfigRefused.
const (
	NotFound   Reason = "not_found"
	NotPulled  Reason = "not_pulled"  // an image of the lab that bootlab images pull fetches
	NotServed  Reason = "not_served"  // no profile names it and it is not below public/, or it is a document or a secret
	Unreadable Reason = "unreadable"  // the daemon may not read it, or the disk failed
	Outside    Reason = "outside"     // the client's address is in no network of the lab
	BadRequest Reason = "bad_request" // what the client asks for does not exist in the protocol, or is not offered
	Busy       Reason = "busy"        // all transfers by TFTP are in use; of TFTPFailed, too: another client got its slot
)

// The reasons of ScriptRefused, ConfigRefused and AddressConflict.
const (
	UnknownMachine Reason = "unknown_machine" // no machine of the lab has this MAC
	WrongAddress   Reason = "wrong_address"   // the machine holds another address than the one that asks, or none
	OtherMachine   Reason = "other_machine"   // a machine with another MAC uses the address; of requests for files, too
	Silent         Reason = "silent"          // no machine answers ARP at the address
	WrongToken     Reason = "wrong_token"     // the token is of no boot that is under way
	NoBoot         Reason = "no_boot"         // no boot of the machine is under way: it is installed, or was not armed
	AlreadyRead    Reason = "already_read"    // this boot has read its document as often as it may
	BeingRead      Reason = "being_read"      // another read of the document is under way
	NotRendered    Reason = "not_rendered"    // a template or a document has an error, which Err names
	NotStored      Reason = "not_stored"      // the state of the boot could not be written or read
)

// The reasons of FileAborted and TFTPFailed. Bytes and Size say how far the transfer came.
const (
	Stalled     Reason = "stalled"      // the client stopped taking data
	Closed      Reason = "closed"       // the client ended the transfer, or started over
	FileChanged Reason = "file_changed" // on the appliance, while it was sent

	Unacknowledged Reason = "unacknowledged" // of requests by TFTP that are Claimed: no block was acknowledged
)

// reasons describes each reason: a sentence about the request, the transfer or the machine.
var reasons = []struct {
	reason Reason
	help   string
}{
	{NoReservation, "it has no reservation, and no pool takes it"},
	{NoNetwork, "it asked from a segment, or through a relay, that is in no network of the lab"},
	{OtherNetwork, "its reservation is in another network"},
	{PoolFull, "the pool is full"},
	{PortLimit, "the machines behind its port of a relay have as many addresses as per_port allows"},
	{OtherSubnet, "the address is of another network"},
	{OtherReservation, "its reservation is another address"},
	{OtherLease, "its lease is of another address"},
	{AddressNotFree, "the address is not free for it"},
	{NotOffered, "it requests an address that it was not offered"},

	{NotFound, "it does not exist"},
	{NotPulled, "it is an image that is not pulled yet"},
	{NotServed, "it is not to be served: no profile names it and it is not below public/, or it is a document or a secret"},
	{Unreadable, "the daemon cannot read it"},
	{Outside, "it came from an address that is in no network of the lab"},
	{BadRequest, "it asks for what is not served"},
	{Busy, "all transfers by TFTP were in use"},

	{UnknownMachine, "no machine of the lab has its MAC"},
	{WrongAddress, "it came from an address that the machine does not hold"},
	{OtherMachine, "another machine uses the address that it came from"},
	{Silent, "no machine answers ARP at the address that it came from"},
	{WrongToken, "its token is of no boot that is under way"},
	{NoBoot, "no boot of the machine is under way"},
	{AlreadyRead, "this boot has read the document as often as it may"},
	{BeingRead, "another read of the document is under way"},
	{NotRendered, "a template or a document has an error"},
	{NotStored, "the state of the boot could not be stored"},

	{Stalled, "the client stopped taking data"},
	{Closed, "the client ended it"},
	{FileChanged, "the file changed while it was sent"},
	{Unacknowledged, "nobody acknowledged a block: the request may be forged"},
}

// Reasons returns all reasons, in the order of the table.
func Reasons() []Reason {
	all := make([]Reason, len(reasons))
	for i, r := range reasons {
		all[i] = r.reason
	}
	return all
}

// Help returns what the reason means; empty for a reason of another version.
func (r Reason) Help() string {
	for _, known := range reasons {
		if known.reason == r {
			return known.help
		}
	}
	return ""
}
