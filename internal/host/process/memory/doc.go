// Package memory makes the garbage collector respect the memory limit of the process's control group, makes collections of a small heap
// rare, and gives back what is not in use while the process is quiet.
//
// Without it the heap may grow to twice of what is in use before a collection, and the kernel kills a process that reaches
// the limit of its group. An operator's GOMEMLIMIT goes first.
//
//	follow := memory.NewFollower(os.DirFS("/"))
//	follow.Update() // again from time to time: systemctl set-property changes the limit of a running service
//
//	pacer := memory.NewPacer() // before what fills the heap
//	pacer.Follow() // once the heap is filled
//
//	release := memory.NewReleaser()
//	release.Look(time.Now()) // about once a second
package memory
