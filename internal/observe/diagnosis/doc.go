// Package diagnosis says where the boot of a machine stopped, and why.
//
// Of is a pure function of the boots that the timeline has and of what the daemon measured beside them: the power of a virtual machine,
// servers, pools, checks. What the machine is, package machine has decided; Of adds the evidence, the likely cause and what to do. It reads
// kinds, reasons and clients of events, never their texts. What no event shows it does not claim: a machine that sends nothing gets a list of
// what that can mean. It opens no file and no connection.
//
//	d := diagnosis.Of(boots, diagnosis.Machine{Observation: o, State: machine.Of(o, time.Now()), Known: true})
//	if d.State == diagnosis.Stopped {
//		fmt.Println(d.Stage, d.Cause, d.Do)
//	}
package diagnosis
