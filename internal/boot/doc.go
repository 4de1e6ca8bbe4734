// Package boot is the desk that says what a machine gets: its script, its config document, its "well done".
package boot
