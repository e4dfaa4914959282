// Package incident plays the incident that the project answers, at its own size or at a fraction of it, over real processes.
//
// A split mesh: prefill's pool holds 681,280 tokens, decode's 1,048,576, and 1,048,576 are promised. Four tenants have
// filled decode's pool with their markers; a fifth then asks for the front, the middle and the end of prompts around the
// limit. Three acts:
//
//  1. Every guard on, that promise: the prefill worker does not get ready, and says both numbers.
//  2. Every guard on, prefill promising what it holds: up to its limit prompts are served and echo; over it they are
//     refused with the numbers, before any page is reserved.
//  3. The same build with the guards off, and prefill's refusal draining through the path of a success as a prompt of one
//     token, as it was then: the answer is quick, successful, and made of other tenants' markers. The detectors must be red.
//
// The model is the canary's (package model/canary), so whose marker came out is seen from the token.
package incident
