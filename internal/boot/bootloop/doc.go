// Package bootloop finds machines that go round in circles: iPXE runs, and no operating system ever speaks.
//
// There are two circles, and what sees them are two servers, so both tell one Guard:
//
//   - iPXE gets an address and the name of its script, and never fetches it. Its ROM may lack HTTP, as old cards' do. It is
//     stopped by giving it no boot file, so that firmware goes on to its next device.
//   - It fetches its script again and again. The script loads itself, or fails at once. It is stopped by giving it a script that
//     says so on the machine's screen.
//
// A machine that is reset by hand, or by a test, goes round too, but not so often. The system's first word ends all suspicion.
//
//	g := circle.New(time.Now)
//	if g.Scripted(mac) { … } // held: tell the machine and the admin
package bootloop
