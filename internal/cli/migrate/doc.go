// Package migrate says what a Migration would do, how far it is, and which command leads further. It asks nobody: its
// functions make views of objects.
package migrate
