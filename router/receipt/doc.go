// Package receipt makes, keeps and gives out the receipts of this router's answers, and keeps the reports about them.
//
//	key     the file with the key that signs, and the public keys of those before it
//	claims  what a finished choice was, as claims                                                (pure)
//	store   receipts, for a time and within a number and a size; each belongs to one tenant
//	desk    open reports. Only a person closes one: no timer does, and no restart
//
// Whoever asks for a receipt of another tenant hears what he hears of one that never was.
//
// Receipts are kept in memory: after a restart, or at another router, only the tenant's own copy is left, which verifies
// as before. Open reports are in a file beside the key.
package receipt
