// Package apimodel checks requests to AWS, and its answers, against the API that AWS publishes as JSON. The files
// are those of Debian's package python3-botocore. The tests of the provider use the package as the judge of the fake
// AWS. No file of AWS is in this repository.
package apimodel
