// Package keys maps API keys to tenants from a file that is watched.
//
// The file holds SHA-256 digests, never keys. It is YAML or JSON; limits are optional:
//
//	keys:
//	  - tenant: acme
//	    sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//	tenants:
//	  acme: {max_concurrent: 16}
//	  canary-0: {canary: true}
//
// A tenant marked canary is the operator's: only its requests may say which pair of workers they go through.
// A changed file is taken over without a restart. One that cannot be used is reported, and the last good one stays.
package keys
