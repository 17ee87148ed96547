// Package fakeaws is a fake AWS in memory with the wire format of the real AWS. The package implements the parts of
// EC2, SQS and STS that a provider of instances uses. The fake serves HTTP.
//
// The state consists of instances, volumes, network interfaces and queued messages in one region of one account.
// Requests must be signed with Signature Version 4, and faults can be injected. Unknown actions, parameters and
// filters are errors, never an empty success.
//
// The fake has no goroutines and no timers: each request first applies the changes that are due. With Options.Now, a
// test can therefore move the clock.
package fakeaws
