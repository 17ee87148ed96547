// Package resolve finds what is needed to create the instance of a Machine: the class or inline specification, the
// credentials and the bootstrap template. It also maps a Secret to the classes and Machines that wait for it.
//
// Classes are read from the cache. Secrets are read live at every use, because they may just have been rotated and a
// cache could leak credentials. Only concurrent callers share an answer.
package resolve
